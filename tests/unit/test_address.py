"""One reading of an AMQP URL, whichever library it goes to."""

import traceback

import pytest
from kombu import Connection

from topology.address import AmqpAddress, InvalidAddressError


@pytest.mark.parametrize(
    ("url", "vhost"),
    [
        ("amqp://h", "/"),
        ("amqp://h/", "/"),
        ("amqp://h/%2F", "/"),
        ("amqp://h/shop", "shop"),
        ("amqp://h/a%2Fb", "a/b"),
    ],
)
def test_both_libraries_read_the_same_vhost(url: str, vhost: str) -> None:
    address = AmqpAddress.parse(url)

    assert address.vhost == vhost
    assert address.pika_parameters("test").virtual_host == vhost
    assert Connection(address.kombu_url()).virtual_host == vhost


def test_both_libraries_read_the_same_credentials() -> None:
    address = AmqpAddress.parse("amqp://us%40er:p%2Fw%3A@h:5673/x")
    kombu = Connection(address.kombu_url())
    pika = address.pika_parameters("test")

    assert (kombu.userid, kombu.password, kombu.port) == ("us@er", "p/w:", 5673)
    assert (pika.credentials.username, pika.credentials.password, pika.port) == ("us@er", "p/w:", 5673)


@pytest.mark.parametrize(
    "url", ["amqp://h//", "http://h/", "amqp://h:x/", "amqp://h/?heartbeat=x", "amqp://h/?x=1", ""]
)
def test_a_url_that_leaves_a_doubt_is_refused(url: str) -> None:
    with pytest.raises(InvalidAddressError):
        AmqpAddress.parse(url)


@pytest.mark.parametrize("odd", "#/?:[]@% \n")
@pytest.mark.parametrize(
    "url", ["amqp://user:se{}cret@host/", "amqp://user:se{}cret@host:5672/v", "http://u:se{}cret@h"]
)
def test_no_part_of_a_wrongly_written_password_is_quoted(odd: str, url: str) -> None:
    try:
        said = str(AmqpAddress.parse(url.format(odd)))
    except InvalidAddressError as error:
        said = "".join(traceback.format_exception(error, limit=0))
    assert "se" not in said.replace("reserved", "").replace("seconds", "")
    assert "cret" not in said


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(AmqpAddress.parse("amqp://user:secret@h/")) + str(
        AmqpAddress.parse("amqp://u:secret@h")
    )
