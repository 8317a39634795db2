"""Containers for the tests, made by testcontainers and removed by us."""

import os
import warnings
from typing import Any

from dev.ports import free_ports
from dev.runs import Run, project
from dev.servers.docker import (
    POSTGRES_IMAGE,
    RABBITMQ_IMAGE,
    ContainerServers,
    PublishedPorts,
    have_images,
)
from dev.servers.secrets import USER, keep
from dev.waiting import Say


class TestContainers(ContainerServers):
    """One RabbitMQ and one Postgres container, labelled with this run."""

    __test__ = False  # not a test class, whatever its name suggests to pytest

    def __init__(self, run: Run, say: Say) -> None:
        self.ports = PublishedPorts(*free_ports(3, run.purpose))
        super().__init__(run, keep(run.directory), self.ports, say)

    def start(self) -> None:
        # Its reaper is one more image to fetch; our record, `close` and `make down` do the reaper's work.
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        with warnings.catch_warnings():
            # testcontainers uses its own deprecated decorator at import.
            warnings.simplefilter("ignore", DeprecationWarning)
            from testcontainers.community.postgres import PostgresContainer
            from testcontainers.community.rabbitmq import RabbitMqContainer
            from testcontainers.core.container import DockerContainer

        have_images([RABBITMQ_IMAGE, POSTGRES_IMAGE], self.say)
        label, value = "redrive.run", project(self.run.purpose)
        self.run.record(container=f"{label}={value}")
        broker = RabbitMqContainer(
            RABBITMQ_IMAGE,
            username=USER,
            password=self.secrets.broker_password,
            vhost="/",
            labels={label: value},
        )
        broker.ports = _loopback({5672: self.ports.amqp, 15672: self.ports.management})
        database = PostgresContainer(
            POSTGRES_IMAGE,
            username=USER,
            password=self.secrets.database_password,
            dbname="postgres",
            driver=None,
            labels={label: value},
        )
        # Tests kill the server, never the machine: the kernel keeps what was written, so nothing is lost.
        database.with_command("postgres -c fsync=off -c max_connections=200")
        database.ports = _loopback({5432: self.ports.database})
        self.say("starting RabbitMQ and Postgres containers")
        # The base class's start creates and starts; the subclasses' would also wait, one by one and mutely.
        for container in (broker, database):
            DockerContainer.start(container)
        self.broker, self.database = broker.get_container_id(), database.get_container_id()
        self.wait()
        for container in (broker, database):
            container.get_docker_client().client.close()


def _loopback(ports: dict[int, int]) -> Any:
    """docker-py's form of "on 127.0.0.1 only", which testcontainers hands on but has no setter for."""
    return {f"{inside}/tcp": ("127.0.0.1", outside) for inside, outside in ports.items()}
