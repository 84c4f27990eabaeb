"""The gate's configuration: every option with its default and range."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeflock.common.command.kinds import FLAG, INTEGER, PATH, TEXT
from edgeflock.common.command.log import log_format_option, log_level_option
from edgeflock.common.command.options import option
from edgeflock.common.command.ranges import between

_WHERE, _FILES = "Where", "Files and logs"


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """How one gate stands between clients and their coordinator."""

    coordinator: str = option(
        "127.0.0.1:9299", TEXT, "--gate-listen of fl-server", group=_WHERE, metavar="ADDRESS"
    )
    key: Path | None = option(
        None,
        PATH,
        "file of fl-server's --gate-key",
        group=_WHERE,
        metavar="FILE",
        shown="none: it has to be said",
    )
    listen: str = option(
        "127.0.0.1:0",
        TEXT,
        "where clients connect; port 0 takes a free one; :9301 is every interface, with TLS or --insecure",
        group=_WHERE,
        metavar="ADDRESS",
    )
    advertise: str | None = option(
        None,
        TEXT,
        "where clients reach it, host:port, if that is another address",
        group=_WHERE,
        shown="that of --listen; of every interface this machine's name",
        metavar="ADDRESS",
    )
    name: str | None = option(
        None, TEXT, "name of this gate, the same every time", group=_WHERE, shown="where clients reach it"
    )
    tls_cert: Path | None = option(
        None,
        PATH,
        "talk TLS with clients, with this certificate and those that vouch for it (PEM)",
        group=_WHERE,
        metavar="FILE",
    )
    tls_key: Path | None = option(None, PATH, "its private key (PEM)", group=_WHERE, metavar="FILE")
    tls_client_ca: Path | None = option(
        None,
        PATH,
        "ask clients for a certificate with their id that this authority vouches for (PEM)",
        group=_WHERE,
        metavar="FILE",
    )
    coordinator_ca: Path | None = option(
        None,
        PATH,
        "talk TLS with the coordinator, for which this authority vouches (PEM)",
        group=_WHERE,
        metavar="FILE",
    )
    insecure: bool = option(False, FLAG, "allow plain text beyond this machine", group=_WHERE)
    credit_mib: int = option(
        32,
        INTEGER,
        "MiB of uploads that may be in flight at a time",
        group=_WHERE,
        allowed=between(1, 65536, "an integer"),
    )
    spool_dir: Path | None = option(
        None,
        PATH,
        "folder for updates that are on their way; nobody needs it afterwards",
        group=_FILES,
        shown="a temporary one",
        metavar="DIR",
    )
    log_level: str = log_level_option(_FILES)
    log_format: str = log_format_option(_FILES)
