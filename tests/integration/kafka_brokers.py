"""A real Apache Kafka for tests: one that is given, one in Docker, or one from Maven Central's jars.

Looked for in this order: ``TACET_TEST_KAFKA`` (bootstrap servers; never killed), a Docker engine through
testcontainers, Java 17 with Maven. What cannot be had is said in the reason of ``NoKafkaError``.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.support.patience import PATIENCE
from tests.support.ports import free_port

VERSION = "4.3.1"
IMAGE = f"apache/kafka:{VERSION}"
OLDEST = "4.1.1"
"""The oldest release with which simulated brokers are compared."""

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tacet.test</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


class Security(Protocol):
    """Who may connect to brokers, and how."""

    users: Mapping[str, str]
    """Passwords by name, for SCRAM-SHA-512."""

    def settings(self, port: int, controller: int) -> Mapping[str, str]:
        """Return what a broker on these ports is set to besides."""


class NoKafkaError(Exception):
    """No broker can be had here, and why."""


class Broker(Protocol):
    """A running broker."""

    bootstrap: str
    killable: bool

    def kill(self) -> None:
        """End it without warning."""

    def pause(self) -> None:
        """Let it answer nothing, with its connections open."""

    def resume(self) -> None:
        """Let it go on."""

    def start(self) -> None:
        """Start it (again) on the same data and port; return when the port answers."""

    def close(self) -> None:
        """End it for good."""


def find_broker() -> Broker:
    """Return a running broker, or raise ``NoKafkaError`` with all reasons."""
    given = os.environ.get("TACET_TEST_KAFKA")
    if given:
        return GivenBroker(given)
    reasons = ["TACET_TEST_KAFKA is not set"]
    for start in (_docker, _java):
        try:
            return start()
        except NoKafkaError as reason:
            reasons.append(str(reason))
    raise NoKafkaError("; ".join(reasons))


class GivenBroker:
    """Somebody else's broker: used, not started, not killed."""

    killable = False

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def kill(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


# --- Docker ---------------------------------------------------------------------------------------------


class DockerBroker:
    """A broker in a container whose port stays the same over a restart."""

    killable = True

    def __init__(self) -> None:
        from testcontainers.core.container import DockerContainer

        port = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        self._container: Any = DockerContainer(IMAGE).with_bind_ports(port, port)
        for name, value in {
            "PROCESS_ROLES": "broker,controller",
            "NODE_ID": "1",
            "CONTROLLER_QUORUM_VOTERS": "1@localhost:19093",
            "LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:19093",
            "ADVERTISED_LISTENERS": f"PLAINTEXT://{self.bootstrap}",
            **{key.upper().replace(".", "_"): value for key, value in _COMMON.items()},
        }.items():
            self._container.with_env(f"KAFKA_{name}", value)

    def start(self) -> None:
        if self._container.get_wrapped_container() is None:
            self._container.start()
        else:
            self._container.get_wrapped_container().start()
        await_port(self.bootstrap)

    def kill(self) -> None:
        self._container.get_wrapped_container().kill(signal="SIGKILL")

    def pause(self) -> None:
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        self._container.get_wrapped_container().unpause()

    def close(self) -> None:
        self._container.stop()


def _docker() -> Broker:
    try:
        import docker

        docker.from_env(timeout=5).ping()
    except Exception as error:
        reason = f"no Docker engine answers ({type(error).__name__})"
        raise NoKafkaError(reason) from error
    broker = DockerBroker()
    broker.start()
    return broker


# --- Java and Maven -------------------------------------------------------------------------------------

_COMMON = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
}
_OF_THREE = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class JavaBroker:
    """A broker as a child process, in KRaft mode, on free ports of the loopback; alone, or one of a cluster."""

    killable = True

    def __init__(
        self, jars: Path, node: int = 1, ports: Sequence[tuple[int, int]] = (), cluster: str = "",
        security: Security | None = None,
    ) -> None:  # fmt: skip
        """``ports`` are those of all brokers of the cluster: for clients, and among themselves."""
        self._folder = Path(tempfile.mkdtemp(prefix="tacet-kafka-"))
        self.data = self._folder / "data"
        """Where its log segments are."""
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        ports = ports or [(free_port(), free_port())]
        port, controller = ports[node - 1]
        self.bootstrap = f"127.0.0.1:{port}"
        voters = (f"{number}@127.0.0.1:{internal}" for number, (_, internal) in enumerate(ports, 1))
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dir": str(self.data),
            **_COMMON,
            **(_OF_THREE if len(ports) >= 3 else {}),
            **(security.settings(port, controller) if security else {}),
        }
        self._properties = self._folder / "server.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        named = f"--cluster-id={cluster or _cluster_id()}"  # one word: an id may begin with a dash
        users = [word for name, password in (security.users if security else {}).items()
                 for word in ("--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]")]  # fmt: skip
        self._java("kafka.tools.StorageTool", "format", named, "-c", str(self._properties), *users)

    def _command(self, main: str, *arguments: str) -> list[str]:
        memory = ["-Xmx512M", "-Xms256M", "-XX:TieredStopAtLevel=1"]
        return ["java", *memory, "-cp", f"{self._jars}/*", main, *arguments]

    def _java(self, main: str, *arguments: str) -> None:
        done = subprocess.run(self._command(main, *arguments), capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode:
            reason = f"{main} failed: {done.stderr.decode()[-500:]}"
            raise NoKafkaError(reason)

    def begin(self) -> None:
        """Start it (again) on the same data and port, without waiting for its answer."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> None:
        self.begin()
        self.await_answer()

    def await_answer(self) -> None:
        """Return when its port answers."""
        await_port(self.bootstrap, alive=self.runs)

    def runs(self) -> bool:
        """Return whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(timeout=PATIENCE)
            self._process = None

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class JavaCluster:
    """Three brokers that hold every partition three times; as one ``Broker`` it is one of them, in turn, that falls."""

    killable = True

    def __init__(self, jars: Path, security: Security | None = None) -> None:
        ports = [(free_port(), free_port()) for _ in range(3)]
        cluster = _cluster_id()
        self.brokers = {node: JavaBroker(jars, node, ports, cluster, security) for node in (1, 2, 3)}
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())
        self._turns = itertools.cycle(self.brokers)
        self._turn = 1
        self._lost: set[int] = set()

    def begin(self) -> None:
        """Start all, and wait until they answer."""
        for broker in self.brokers.values():
            broker.begin()
        for broker in self.brokers.values():
            broker.await_answer()

    def _next(self) -> JavaBroker:
        self._turn = next(node for node in self._turns if node not in self._lost)
        return self.brokers[self._turn]

    def kill(self) -> None:
        self._next().kill()

    def pause(self) -> None:
        self._next().pause()

    def resume(self) -> None:
        self.brokers[self._turn].resume()

    def start(self) -> None:
        self.brokers[self._turn].start()

    def lose(self) -> None:
        """End one for good; the others go on without it."""
        self._next().kill()
        self._lost.add(self._turn)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _java() -> Broker:
    _require_java()
    broker = JavaBroker(_jars())
    broker.start()
    return broker


def find_release(version: str) -> JavaBroker:
    """Return a running broker of a release; NoKafkaError where there is no Java for it."""
    _require_java()
    broker = JavaBroker(_jars(version))
    broker.start()
    return broker


def find_cluster(security: Security | None = None) -> JavaCluster:
    """Return three running brokers; NoKafkaError where there is no Java for them."""
    _require_java()
    cluster = JavaCluster(_jars(), security)
    cluster.begin()
    return cluster


def find_secured(security: Security) -> JavaBroker:
    """Return a running broker that only its users reach; NoKafkaError where there is no Java for it."""
    _require_java()
    broker = JavaBroker(_jars(), security=security)
    broker.start()
    return broker


def _require_java() -> None:
    if shutil.which("java") is None:
        reason = "no java on the path"
        raise NoKafkaError(reason)


def _jars(version: str = VERSION) -> Path:
    """Return the folder of a release's jars in the user's cache, filled by Maven the first time."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jars = base / "tacet" / "kafka" / f"{version}-tools"
    if any(jars.glob("kafka_2.13-*.jar")):
        return jars
    if shutil.which("mvn") is None:
        reason = "no Maven on the path, and Kafka's jars are not in the cache"
        raise NoKafkaError(reason)
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as work:
        pom, target = Path(work) / "pom.xml", Path(work) / "jars"
        pom.write_text(_POM.format(version=version))
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={target}",
        ]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode:
            reason = f"Maven could not fetch Kafka's jars: {done.stdout.decode()[-300:]}"
            raise NoKafkaError(reason)
        with contextlib.suppress(OSError):  # another run was faster
            target.rename(jars)
    return jars


def required_jars() -> Path:
    """Return the folder of Kafka's jars; NoKafkaError if they, or Java, cannot be had here."""
    _require_java()
    return _jars()


def kafka_jars() -> Path | None:
    """Return the folder of Kafka's jars; None if they, or Java, cannot be had here."""
    with contextlib.suppress(NoKafkaError):
        return required_jars()
    return None


# --- ports ----------------------------------------------------------------------------------------------


def await_port(bootstrap: str, alive: Callable[[], bool] = lambda: True) -> None:
    """Return when a port answers; NoKafkaError when none does in time, or what was to answer has ended."""
    host, port = bootstrap.split(":")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and alive():
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.1)
    reason = f"the broker did not answer on {bootstrap} within {PATIENCE:.0f} s"
    raise NoKafkaError(reason)
