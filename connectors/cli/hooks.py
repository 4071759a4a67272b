"""hooks: receive webhooks and event streams of cloud systems for an ingest."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FILE, Address, MetricsPort, json_option, metrics_option, monitor_of, run_async
from connectors.cli.output import print_json
from connectors.http.server import Tls
from connectors.operations.monitoring.watches import watch_certificates, watch_hooks, watch_secrets
from connectors.runtime.signals import stop_signals
from connectors.sources.cloud.config import ReloadingHooks
from connectors.sources.cloud.service import WebhookConfig, WebhookListener, WebhookService
from stream.errors import UsageError
from stream.settings import Settings


@click.command()
@click.option("--to", type=FILE, required=True, help="Socket of 'tacet ingest --hooks' or 'tacet run --hooks'.")
@click.option("--listen", type=Address(), help="Address that receives webhooks: HOST:PORT.")
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
@json_option
@click.pass_obj
def hooks(
    settings: Settings, *, to: Path, listen: tuple[str, int] | None, names: tuple[str, ...],
    tls_cert: Path | None, tls_key: Path | None, behind_proxy: bool, metrics: MetricsPort | None, as_json: bool,
) -> None:  # fmt: skip
    """Receive webhooks of Mist and Meraki, and read Cisco Spaces: verify each event, and pass sightings to an ingest.

    The process that faces the internet thus has no key and no policy. Systems and their secrets are read from the file
    that TACET_HOOKS_FILE names. Ids of accepted requests are stored beside it, so that a repeated request counts once.
    """
    file = settings.hooks_file
    if file is None:
        msg = "TACET_HOOKS_FILE: must name a file of systems and their secrets, mode 0600"
        raise UsageError(msg)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert: must be used with --tls-key")
    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key)
    listener = None if listen is None else WebhookListener(listen, names, tls, behind_proxy)
    systems = ReloadingHooks(file)
    service = WebhookService(WebhookConfig(systems, to, file.with_name(f"{file.name}.state"), listener))

    async def until_stopped() -> None:
        async with stop_signals() as stop:
            await service.run(stop, click.echo)

    with monitor_of("hooks", None, metrics) as monitor:
        watch_hooks(monitor, service)
        watch_secrets(monitor, [systems])
        watch_certificates(monitor, hooks=tls_cert)
        try:
            run_async(monitor.during(until_stopped()))
        finally:
            report(service, as_json=as_json)


def report(service: WebhookService, *, as_json: bool) -> None:
    """Print the numbers of requests, events and rows, by result."""
    counts = service.counts
    if as_json:
        print_json(
            {"requests": counts.requests, "taken": counts.taken, "refused": dict(sorted(counts.refused.items())),
             "rows": counts.rows, "dropped": dict(sorted(counts.dropped.items()))}
        )  # fmt: skip
        return
    click.echo(f"{counts.requests:,} requests, {counts.taken:,} accepted, {counts.rows:,} rows passed on")
    for what, counted in (("refused", counts.refused), ("rows dropped", counts.dropped)):
        for reason, n in sorted(counted.items()):
            click.echo(f"  {n:>8,}  {what}: {reason.replace('_', ' ')}")
