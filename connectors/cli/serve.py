"""serve: the HTTP service and its page."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click

from connectors.cli.options import (
    FILE,
    FOLDER,
    Address,
    MetricsPort,
    kafka_unless,
    metrics_option,
    monitor_of,
    policy_option,
    read_policy,
    run_async,
    storage_options,
)
from connectors.http.server import Tls
from connectors.monitoring.monitor import Monitor
from connectors.operations.monitoring.watches import watch_certificates
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import stop_signals
from connectors.serve.readiness import ServiceWatch
from connectors.serve.service import Service
from connectors.serve.startup import ServeConfig
from connectors.serve.startup import serve as serve_until
from stream.settings import Settings


@click.command()
@storage_options
@policy_option
@click.option("--audience", "audiences", multiple=True, help="Serve this audience; may be repeated.")
@click.option("--account", is_flag=True, help="Serve the account to readers with that role.")
@click.option("--operator", is_flag=True, help="Serve the operator's figures to readers with that role.")
@click.option("--listen", type=Address(), default="127.0.0.1:8050", show_default=True, help="Address to serve.")
@click.option("--tokens", type=FILE, help="File of access tokens, made by 'tacet token new'.")
@click.option("--open", "opened", metavar="AUDIENCE", help="Let anyone read this audience of counts without a token.")
@click.option(
    "--room", "rooms", multiple=True, metavar="AUDIENCE",
    help="Show where there is room, at /room, by the counts of this audience; may be repeated.",
)  # fmt: skip
@click.option(
    "--embed", "embedders", multiple=True, metavar="ORIGIN",
    help="With --room: let pages of this origin embed that page, such as https://intranet.example.org.",
)  # fmt: skip
@click.option(
    "--bookings", type=FILE,
    help="Show booked rooms that are probably empty, and used rooms that nobody booked: a file that names calendars.",
)  # fmt: skip
@click.option("--index", type=FILE, help="Store the index of released records in this file.  [default: in memory]")
@click.option("--plans", type=FOLDER, help="Floor plans: SITE/FLOOR.svg or .geojson.")
@click.option(
    "--play", type=click.FloatRange(0.1, 100_000), help="Play the existing records, at this multiple of real time."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST[:PORT]",
    help="A host name by which clients reach it. May be repeated.",
)
@click.option("--tls-cert", type=FILE, help="Certificate chain (PEM).")
@click.option("--tls-key", type=FILE, help="Private key of the certificate (PEM).")
@click.option("--behind-proxy", is_flag=True, help="A trusted proxy terminates TLS and names the client.")
@metrics_option
@click.pass_obj
def serve(
    settings: Settings, *, store: Path | None, kafka: str | None, policy_file: Path, audiences: tuple[str, ...],
    account: bool, operator: bool, listen: tuple[str, int], tokens: Path | None, opened: str | None,
    rooms: tuple[str, ...], embedders: tuple[str, ...], bookings: Path | None, index: Path | None, plans: Path | None,
    play: float | None, names: tuple[str, ...],
    tls_cert: Path | None, tls_key: Path | None,
    behind_proxy: bool, metrics: MetricsPort | None,
) -> None:  # fmt: skip
    """Serve released records over HTTP: a page for people, an interface for programs.

    \b
    tacet serve --store store --policy policy.toml --audience public
    tacet serve --kafka broker:9092 --policy policy.toml --audience public --index history --tokens tokens

    The service opens only the outboxes or private topics of these audiences, so it may run as a user who cannot open
    the store. Without --tokens it prints a link that admits one browser. Programs send a token of 'tacet token new'.
    """
    servers = kafka_unless(store, kafka, settings)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert: must be used with --tls-key")
    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key)
    config = ServeConfig(
        read_policy(policy_file), tuple(dict.fromkeys(audiences)), store, servers, account=account, operator=operator,
        listen=listen, tokens=tokens, opened=opened, rooms=rooms, embedders=embedders, bookings=bookings,
        index=index, plans=plans, policy_folder=policy_file.parent, play=play, names=names, tls=tls,
        behind_proxy=behind_proxy,
    )  # fmt: skip
    with monitor_of("serve", config.policy, metrics) as monitor:
        files = {"kafka": settings.kafka_cert_file, "kafka_ca": settings.kafka_ca_file}
        watch_certificates(monitor, page=tls_cert, **({} if servers is None else files))
        serve_here(config, monitor)


def serve_here(config: ServeConfig, monitor: Monitor | None = None) -> None:
    """Serve until a stop signal, and print the address."""
    own_monitor = monitor or monitor_of("serve", config.policy, None)

    def beside(service: Service) -> list[Coroutine[Any, Any, None]]:
        watch = ServiceWatch(own_monitor, config, service)
        return [] if own_monitor.address is None else [watch.poll()]

    async def until_stopped() -> None:
        async with stop_signals() as stop:
            await serve_until(config, wall_clock, stop, click.echo, beside)

    run_async(own_monitor.during(until_stopped()))
