"""`dlq alerts`"""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from dlq_consumer import printing
from dlq_consumer.alert_message import test_alert
from dlq_consumer.channels.channel import Channel, DeliveryError
from dlq_consumer.channels.configured import WrongChannelError, channels_of
from dlq_consumer.commands.filtering import past
from dlq_consumer.commands.groups import span
from dlq_consumer.commands.running import Load, fail, with_database
from dlq_consumer.commands.wording import NAME, Words
from dlq_consumer.settings import AlertSettings, SentrySettings
from storage import alert_list, alert_snoozes
from storage.alert_list import ALERT_STATES, MAX_PAGE, AlertFilter, AlertRow, AlertState
from storage.alert_rules import ALERT_KINDS, AlertKind
from storage.alert_snoozes import MAX_NOTE, UnknownSubjectError
from storage.group_list import AmbiguousGroupError, CursorError, UnknownGroupError
from storage.pool import Pool
from storage.times import TIME_FORMS, shown_time
from topology import exits

BY = click.option("--by", type=NAME, help="Who says so (default: the user running this).")
WHY = click.option("--note", type=Words(MAX_NOTE), help="Why.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.group(invoke_without_command=True)
@click.option("--kind", type=click.Choice(ALERT_KINDS), help="What it tells.")
@click.option("--state", type=click.Choice(ALERT_STATES), help="What became of it.")
@click.option("--group", "subject", help="Start of a fingerprint, or of another subject such as no_consumer.")
@click.option("--since", callback=past, metavar="TIME", help=f"Raised then or later: {TIME_FORMS}.")
@click.option("--until", callback=past, metavar="TIME", help="Raised before.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True)
@click.option("--before", metavar="CURSOR", help="Go on where a list ended, as it says.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_context
def alerts(
    context: click.Context, kind: AlertKind | None, state: AlertState | None, subject: str | None,
    since: datetime | None, until: datetime | None, limit: int, before: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Alerts, the newest first, and where each went; without a subcommand they are listed.

    \b
    States: sending (a channel is still to take it), delivered (to each), snoozed, no_channel (none was
    configured), given_up (a channel refused it for a day and a half).

    When more follow, the last line (on standard error) says with which --before to go on.

    Exit codes: 1 the database is away, 2 wrong usage.

    Example: dlq alerts --state given_up --since 2d
    """
    if context.invoked_subcommand is not None:
        return
    wanted = AlertFilter(kind, state, subject, since, until)

    async def read(pool: Pool) -> Sequence[AlertRow]:
        try:
            return await alert_list.newest(pool, wanted, limit=limit + 1, cursor=before)
        except CursorError as error:
            fail(f"--before: {error}", exits.USAGE)

    found = with_database(context.obj, read)
    shown = found[:limit]
    if as_json:
        for alert in shown:
            printing.json_line(alert.as_json())
    else:
        heads = ("RAISED AT", "KIND", "ABOUT", "STATE", "CHANNELS", "DETAIL")
        printing.table(heads, [_row(each) for each in shown])
    if len(found) > limit:
        click.echo(f"more: --before {shown[-1].cursor}", err=True)


@alerts.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object per channel.")
@click.pass_obj
def test(load: Load, as_json: bool) -> None:
    """Send an alert that says it is a test through every channel, and tell what became of it.

    Needs neither broker nor database. Exit codes: 1 a channel did not take it, 2 no channel is configured.

    Example: dlq alerts test
    """
    settings = load(AlertSettings)
    try:
        channels = channels_of(settings, load(SentrySettings))
    except WrongChannelError as error:
        fail(str(error), exits.USAGE)
    if not channels:
        fail(
            "no channel: set REDRIVE_ALERT_WEBHOOK_URL, REDRIVE_ALERT_APPRISE_URLS or REDRIVE_SENTRY_DSN",
            exits.USAGE,
        )
    if not asyncio.run(_send(channels, as_json)):
        sys.exit(exits.FAILED)


@alerts.command()
@click.argument("group")
@click.option("--for", "until", callback=span, metavar="TIME", required=True, help="For so long: 2h, 3d, 1w.")
@BY
@WHY
@AS_JSON
@click.pass_obj
def snooze(load: Load, group: str, until: datetime, by: str | None, note: str | None, as_json: bool) -> None:
    """Send no alert of GROUP for a time: they are written down. What came meanwhile is told of afterwards.

    GROUP is the start of a fingerprint, or another subject in full, as `dlq alerts` shows it.

    Exit codes: 1 no such group, 2 wrong usage, or the start of several fingerprints.

    Example: dlq alerts snooze 3f9a --for 2h --note "deploying the fix"
    """
    subject = _snooze(load, group, until, by, note)
    if as_json:
        printing.json_line({"subject": subject, "snoozed_until": shown_time(until)})
    else:
        click.echo(f"{subject}: no alerts before {until.astimezone(UTC).isoformat(timespec='seconds')}")


@alerts.command()
@click.argument("group")
@BY
@WHY
@AS_JSON
@click.pass_obj
def unsnooze(load: Load, group: str, by: str | None, note: str | None, as_json: bool) -> None:
    """End a snooze: the next letter that comes alerts, if any came meanwhile.

    Exit codes: 1 no such group, 2 wrong usage, or the start of several fingerprints.

    Example: dlq alerts unsnooze 3f9a
    """
    subject = _snooze(load, group, None, by, note)
    if as_json:
        printing.json_line({"subject": subject, "snoozed_until": None})
    else:
        click.echo(f"{subject}: alerts are sent")


def _snooze(load: Load, group: str, until: datetime | None, by: str | None, note: str | None) -> str:
    async def write(pool: Pool) -> str:
        try:
            return await alert_snoozes.snooze(pool, group, until, by=by or getpass.getuser(), note=note)
        except (UnknownSubjectError, UnknownGroupError) as error:
            fail(str(error))
        except AmbiguousGroupError as error:
            fail(str(error), exits.USAGE)

    return with_database(load, write, changes=True)


async def _send(channels: Sequence[Channel], as_json: bool) -> bool:
    alert = test_alert()

    async def send(channel: Channel) -> str | None:
        try:
            await channel.send(alert)
        except DeliveryError as error:
            return str(error)
        finally:
            await channel.close()
        return None

    problems = await asyncio.gather(*(send(channel) for channel in channels))
    for channel, problem in zip(channels, problems, strict=True):
        if as_json:
            printing.json_line({"channel": channel.name, "ok": problem is None, "problem": problem})
        else:
            click.echo(f"{channel.name}: {'OK' if problem is None else printing.plain(problem)}")
    return not any(problems)


def _row(alert: AlertRow) -> tuple[object, ...]:
    channels = ", ".join(f"{each['channel']} {each['state']}" for each in alert.deliveries)
    about = alert.fingerprint[:12] if alert.fingerprint else alert.subject
    at = alert.created_at.astimezone(UTC).isoformat(timespec="seconds")
    letter = f"letter {alert.letter_id}" if alert.letter_id is not None else None
    return at, alert.kind, about, alert.state, channels or None, alert.detail or letter
