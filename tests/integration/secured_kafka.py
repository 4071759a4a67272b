"""A Kafka that only its users reach: TLS everywhere, SCRAM for passwords, mTLS beside it, and an authorizer.

Users and rules are those that ``tacet topics acls`` prints. Brokers and controllers know each other by certificate.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DescribeAclsRequest, DescribeClientQuotasRequest

from connectors.storage.kafka.acls import BROKER_SETTINGS, Foreign, User, document, run_user, users
from connectors.storage.kafka.connection import Access, KafkaArguments
from stream.release.validation import Policy, load_policy
from stream.settings import Settings
from tests.acceptance.command_line import here
from tests.integration.kafka_brokers import JavaBroker, NoKafkaError, find_secured, kafka_jars
from tests.support.ports import free_port

ADMIN, BROKER = "admin", "broker"
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
PATTERNS = {"literal": 3, "prefixed": 4}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Alter": 7, "Describe": 8, "DescribeConfigs": 10, "AlterConfigs": 11}
ALLOW, ANY, EXACTLY = 3, 1, 0
FOREIGN = Foreign(counts="people.counters", traps="telegraf.traps", groups=("tacet.telegraf",))
"""Topics of other programs."""
Acl = tuple[int, str, int, str, int]
"""Resource, name, pattern, principal, operation; in Kafka's numbers."""


class Secured:
    """Certificates and users of a cluster, in a folder of their own."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        if shutil.which("openssl") is None:
            reason = "no openssl on the path, which certifies brokers"
            raise NoKafkaError(reason)
        self.folder = folder
        self.names = [user.name for user in (*users(policy), run_user(FOREIGN))]
        self.users: Mapping[str, str] = {name: f"password-of-{name}" for name in (ADMIN, *self.names)}
        self.mtls: dict[int, int] = {}
        """The port where certificates are asked for, by the one where passwords are."""
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                      "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
        for name in (BROKER, ADMIN, *self.names):
            self.certify(name)
        pem = (folder / f"{BROKER}.key").read_text() + (folder / f"{BROKER}.pem").read_text()
        (folder / "keystore.pem").write_text(pem)
        for name, password in self.users.items():
            self.give(name, password)

    def certify(self, name: str) -> None:
        """Sign a certificate for a user, good for both ends of a connection on this machine."""
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                      "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        (self.folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", "2", "-extfile", "ext", "-out", f"{name}.pem")  # fmt: skip
        (self.folder / f"{name}.key").chmod(0o600)

    def give(self, name: str, password: str) -> Path:
        """Write a user's file of its password."""
        path = self.folder / f"{name}.password"
        path.touch(0o600)
        path.write_text(password + "\n")
        return path

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def settings(self, port: int, controller: int) -> Mapping[str, str]:
        """Return a broker's settings: passwords on its port, certificates on one more and among controllers."""
        mtls = self.mtls.setdefault(port, free_port())
        listeners = f"SASL_SSL://127.0.0.1:{port},MTLS://127.0.0.1:{mtls}"
        return dict(BROKER_SETTINGS) | {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,MTLS:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "MTLS",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config":
                "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": r"RULE:^CN=([a-z0-9-]+)$/$1/,DEFAULT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "super.users": f"User:{BROKER};User:{ADMIN}",
            # Of several brokers the first that holds a partition leads it again soon: leaders move, and none dies.
            "leader.imbalance.check.interval.seconds": "5",
            "leader.imbalance.per.broker.percentage": "0",
        }  # fmt: skip

    def variables(self, name: str, *, certificate: bool = False) -> dict[str, str]:
        """Return what a user's programs have in their environment."""
        own = {"CERT_FILE": self.folder / f"{name}.pem", "KEY_FILE": self.folder / f"{name}.key"}
        if not certificate:
            own = {"USERNAME": Path(name), "PASSWORD_FILE": self.folder / f"{name}.password"}
        given = {"CA_FILE": self.folder / "ca.pem"} | own
        return {"TACET_KAFKA_SECURITY_PROTOCOL": "SSL" if certificate else "SASL_SSL"} | {
            f"TACET_KAFKA_{key}": str(value) for key, value in given.items()
        }

    def environment(self, name: str, **more: str) -> dict[str, str]:
        """Return this process's environment, but for whose it is."""
        return {**os.environ, **self.variables(name), **more}

    def arguments(self, name: str) -> KafkaArguments:
        """Return a user's options for clients of aiokafka."""
        return Access(self.known_as(name)).arguments()

    def known_as(self, name: str) -> Settings:
        """Return a user's settings."""
        given = {key.removeprefix("TACET_").lower(): value for key, value in self.variables(name).items()}
        return Settings.model_validate(given)


def asked(made: Iterable[User]) -> set[Acl]:
    """Return the rules that ``tacet topics acls --json`` prints of some users."""
    return {
        (RESOURCES[rule["resource"]], rule["name"], PATTERNS[rule["pattern"]], user["principal"],
         OPERATIONS[rule["operation"]])
        for user in document(made)["principals"]
        for rule in user["acls"]
    }  # fmt: skip


@asynccontextmanager
async def admin_of(bootstrap: str, options: Mapping[str, Any]) -> AsyncIterator[AIOKafkaAdminClient]:
    """Give a client that administers a cluster."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, **options)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def give_rules(bootstrap: str, secured: Secured, rules: Iterable[Acl]) -> None:
    """Give a cluster some rules, as its administrator."""
    async with admin_of(bootstrap, secured.arguments(ADMIN)) as admin:
        for kind, name, pattern, principal, operation in rules:
            request = CreateAclsRequest(kind, name, pattern, principal, "*", operation, ALLOW)
            answer = await admin._send_request(request)
            assert [code for code, _ in answer.creation_responses] == [0], answer


async def quotas_of(bootstrap: str, secured: Secured, name: str) -> dict[str, float]:
    """Return a user's quotas, as a cluster has them."""
    async with admin_of(bootstrap, secured.arguments(ADMIN)) as admin:
        answer = await admin._send_request(DescribeClientQuotasRequest([("user", EXACTLY, name)], strict=True))
    return {rate: value for entry in answer.entries for rate, value in entry[1]}


async def rules_of(bootstrap: str, secured: Secured) -> set[Acl]:
    """Return the rules that a cluster has."""
    everything: tuple[Any, ...] = (ANY, None, ANY, None, None, ANY, ANY)
    async with admin_of(bootstrap, secured.arguments(ADMIN)) as admin:
        answer = await admin._send_request(DescribeAclsRequest(*everything))
    return {
        (kind, name, pattern, principal, operation)
        for kind, name, pattern, rules in answer.resources
        for principal, _, operation, _ in rules
    }


# --- a cluster in use -------------------------------------------------------------------------------------------------

POLICY = """
[site.hall]
sources = ["127.0.0.1"]
tick = "1min"
validity = "5min"
lateness = "1s"
[[site.hall.zones]]
id = "101"
capacity = 30
access_points = ["5c:52:1e:00:20:11"]
[[site.hall.zones]]
id = "102"
capacity = 30
access_points = ["5c:52:1e:00:20:12"]
[[audience]]
name = "dean"
[[audience]]
name = "deanery"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { dean = "100", deanery = "90" }
"""


def all_users(policy: Policy) -> list[User]:
    """Return every user that may be printed for a policy."""
    return [*users(policy, operator=True, foreign=FOREIGN), run_user(FOREIGN)]


@dataclass(frozen=True)
class SecuredKafka:
    """A broker with the users, rules and topics of ``POLICY``."""

    broker: JavaBroker
    secured: Secured
    policy_file: Path

    @property
    def bootstrap(self) -> str:
        """Where passwords are asked for."""
        return self.broker.bootstrap

    @property
    def by_certificate(self) -> str:
        """Where certificates are asked for."""
        return f"127.0.0.1:{self.secured.mtls[int(self.bootstrap.rpartition(':')[2])]}"

    def tacet(
        self, name: str, *words: str, code: int = 0, certificate: bool = False, **more: str
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run one command as a user to its end, in this process; the exit code must be the one expected."""
        given = {"TACET_KAFKA": self.bootstrap} | self.secured.variables(name, certificate=certificate) | more
        with pytest.MonkeyPatch.context() as patch:
            for variable in [each for each in os.environ if each.startswith("TACET_KAFKA")]:
                patch.delenv(variable)
            for variable, value in given.items():
                patch.setenv(variable, value)
            return here(*words, code=code)


@contextmanager
def secured_kafka_in(folder: Path) -> Iterator[SecuredKafka]:
    """A broker whose users have what ``tacet topics acls`` prints, and whose operator has made the topics."""
    policy = load_policy(POLICY)
    secured = Secured(folder, policy)
    (folder / "policy.toml").write_text(POLICY)
    scenario = SecuredKafka(find_secured(secured), secured, folder / "policy.toml")
    try:
        asyncio.run(give_rules(scenario.bootstrap, secured, asked(all_users(policy))))
        scenario.tacet("tacet-operator", "topics", "create", "--policy", str(scenario.policy_file), "--partitions", "1")
        yield scenario
    finally:
        scenario.broker.close()


JAVA_TOOLS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-server-start.sh": "kafka.Kafka",
}
"""What Kafka's scripts start."""


def java_tool(folder: Path, name: str, main: str) -> None:
    """Write one of Kafka's own tools as it is called on a machine that has Kafka."""
    script = folder / name
    script.write_text(f'#!/bin/sh\nexec java -Xmx512m -XX:TieredStopAtLevel=1 -cp "{kafka_jars()}/*" {main} "$@"\n')
    script.chmod(0o700)


def kafka_tools(secured: Secured, folder: Path) -> dict[str, str]:
    """Put Kafka's tools and the administrator's file for them into a folder; return the environment that finds them."""
    for name, main in JAVA_TOOLS.items():
        java_tool(folder, name, main)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    (folder / "admin.properties").touch(0o600)
    (folder / "admin.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{ADMIN}" password="{secured.users[ADMIN]}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.folder / 'ca.pem'}\n"
    )
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
