"""Settings of the console: `console.toml`, then `OTTLA_CONSOLE_...`, then options; later ones win.

Unknown keys are errors that name the nearest known one. `check_exposure` refuses a console that
would give strangers more than the broker beside it does.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.cluster.bootstrap import BadBootstrap, parse_bootstrap
from ottla.client.errors import ClientError
from ottla.client.security_properties import read_file, security_fields
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ENV_PREFIX: Final = "OTTLA_CONSOLE_"
OF_BROKER: Final = "OTTLA_CONSOLE_IDLE_EXIT_MS"
"""A broker's setting for the console that it starts."""
DEFAULT_LISTENER: Final = "http://127.0.0.1:9095"
MAX_CLUSTERS: Final = 32
"""Each has connections and a snapshot of its own."""
AUTHS: Final = ("auto", "none", "password", "proxy", "sasl")
DEFAULT_STATE: Final = "./ottla-console"
CHOICES: Final = {
    "auth": AUTHS,
    "history": ("watched", "always", "off"),
    "history_file": ("auto", "off"),
    "metrics_names": ("ottla", "kafka_exporter"),
}
FORMATS: Final = ("auto", "json", "text", "hex", "msgpack", "registry")
_LISTENER: Final = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+):([0-9]{1,5})/?")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TRACE_URL: Final = re.compile(r"https?://[^\s\"'<>]*\{trace_id\}[^\s\"'<>]*")


class BadSetting(OttlaError, ValueError):
    """A setting of the console is wrong, or a start that is refused."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Fields of records that nobody sees, in topics of a pattern such as `orders.*`."""

    topics: str
    fields: tuple[str, ...]
    text: str = "***"


@dataclass(frozen=True, slots=True)
class Decode:
    """How to show keys and values of some topics, where the page does not say."""

    topics: str
    key: str = "auto"
    value: str = "auto"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A cluster by the name that its pages have."""

    name: str
    bootstrap: str
    command_config: str = ""
    write: bool = False
    masks: tuple[Mask, ...] = ()
    hidden: tuple[str, ...] = ()
    decoders: tuple[Decode, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    """In place of `command_config`: how people log in at the broker that has started us."""
    registry: str = ""
    """URL of the schema registry; without it the one that the brokers name."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All of them; sizes in their own units, times in seconds."""

    listener: str = DEFAULT_LISTENER
    base_path: str = "/"
    write: bool = False
    """Whether changes are allowed, in the clusters whose own `write` is true, too."""
    hosts: tuple[str, ...] = ()
    tls_cert: str = ""
    tls_key: str = ""
    auth: str = "auto"
    """How people log in; `auto` is `sasl` if the clusters want it, else `none` (`settled`)."""
    users_file: str = "users.toml"
    tokens_file: str = ""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose headers count."""
    proxy_user_header: str = "X-Forwarded-User"
    idle_exit_s: int = 0
    """A child of a broker leaves after so many seconds without a request; 0: never."""
    max_searches: int = 2
    search_max_mib: int = 1024
    search_max_s: int = 10
    tail_max_per_s: int = 200
    """Records of a live tail in a second: more cannot be read, and browsers would stumble."""
    value_preview_bytes: int = 4096
    value_view_bytes: int = 1024 * 1024
    download_max_mib: int = 256
    history: str = "watched"
    """When to sample: `always`, `watched` (and ten minutes after), or `off`."""
    history_file: str = "auto"
    """`auto`: in `state`, if there is one; or `off`."""
    history_max_mib: int = 128
    state: str = ""
    """Directory of files of our own."""
    price_remote_gb_month: float = 0.023
    price_local_gb_month: float = 0.08
    currency: str = "USD"
    """Of the two prices, by which the page Tier tells what storage costs, about."""
    trace_url: str = ""
    """Where traces are shown, with `{trace_id}` in it: the header traceparent links there."""
    metrics_names: str = "ottla"
    """Of `/metrics`: ours, or those of kafka_exporter where it has them."""
    clusters: tuple[ClusterSettings, ...] = field(default=())
    attention: tuple[tuple[str, float], ...] = ()
    """Thresholds of the rules by name, where they differ from `findings.Thresholds`."""

    @property
    def scheme(self) -> str:
        return self._parts[0]

    @property
    def host(self) -> str:
        return self._parts[1].strip("[]")

    @property
    def port(self) -> int:
        return int(self._parts[2])

    @property
    def _parts(self) -> tuple[str, str, str]:
        found = _LISTENER.fullmatch(self.listener)
        assert found is not None  # checked by `load`
        return found[1], found[2], found[3]

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the console."""
        return is_loopback(self.host)


LEAST: Final = {
    "max_searches": 1,
    "search_max_mib": 1,
    "search_max_s": 1,
    "tail_max_per_s": 1,
    "value_preview_bytes": 16,
    "value_view_bytes": 1024,
    "download_max_mib": 1,
    "history_max_mib": 1,
}
_TOP: Final = {
    one.name: one
    for one in fields(Settings)
    if one.name not in ("clusters", "idle_exit_s", "attention")
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load(
    file: Path | None,
    env: Mapping[str, str],
    options: Mapping[str, object],
    bootstraps: list[str],
    command_config: str = "",
    *,
    otherwise: Sequence[str] = ("127.0.0.1:9092",),
) -> Settings:
    """The settings; `bootstraps`, `[name=]host:port,...`, are for files that name no clusters.

    They do not replace the clusters of a file, because masks and hidden topics would go with those.
    `otherwise` are the brokers if none are named. The file `command_config` has the credentials for
    both. An option that is None was not given.
    """
    found: dict[str, Any] = {}
    clusters: list[ClusterSettings] = []
    if file is not None:
        found, clusters = _of_file(file)
    for name, text in env.items():
        key = name.removeprefix(ENV_PREFIX).lower()
        if name.startswith(ENV_PREFIX) and name != OF_BROKER:
            _known(key, _TOP, f"environment variable {name}")
            found[key] = _from_text(key, text, name)
    found |= {key: value for key, value in options.items() if value is not None}
    # Somebody has started this console on purpose; a broker's child only works while it is watched.
    found = {"history": "always", "state": DEFAULT_STATE, **found}
    if bootstraps and clusters:
        raise BadSetting(
            f"{file} names clusters, and --bootstrap names {', '.join(bootstraps)}; add a "
            "[[cluster]] to the file, or leave out one of the two"
        )
    if not clusters:
        given = bootstraps or otherwise
        write = bool(found.get("write"))
        clusters = [_of_option(text, command_config, write=write) for text in given]
    names = [one.name for one in clusters]
    if len(set(names)) < len(names):
        raise BadSetting(f"clusters need names that differ, got {', '.join(names)}")
    if len(clusters) > MAX_CLUSTERS:
        raise BadSetting(f"at most {MAX_CLUSTERS} clusters, got {len(clusters)}")
    for one in clusters:
        try:
            parse_bootstrap(one.bootstrap)
        except BadBootstrap as error:
            raise BadSetting(f"cluster {one.name!r}: {error}") from error
    made = Settings(**found, clusters=tuple(clusters))
    _check(made)
    return made


def settled(settings: Settings) -> Settings:
    """With what `auth = "auto"` means: `sasl` if a cluster wants a login that the file lacks."""
    if settings.auth != "auto":
        return settings
    wants = any(is_template(one) for one in settings.clusters)
    return replace(settings, auth="sasl" if wants else "none")


def security_of(cluster: ClusterSettings) -> dict[str, Any]:
    """The arguments of `Security` as `command_config` says them, maybe without a user."""
    if not cluster.command_config:
        return dict(cluster.told)
    try:
        return security_fields(read_file(Path(cluster.command_config)))
    except ClientError as error:
        raise BadSetting(f"cluster {cluster.name!r}, command_config: {error}") from error


def is_template(cluster: ClusterSettings) -> bool:
    """Whether the file says how to log in, but not who: people do that themselves."""
    found = security_of(cluster)
    return (
        str(found.get("security_protocol", "")).startswith("SASL_")
        and found.get("sasl_mechanism") != "OAUTHBEARER"
        and "sasl_username" not in found
    )


def check_exposure(settings: Settings, *, insecure: bool) -> None:
    """Raise `BadSetting` if strangers would get more than the broker beside it gives them."""
    if insecure:
        return
    has_login = settings.auth not in ("auto", "none")
    if not settings.is_local and not has_login:
        raise BadSetting(
            f"{settings.listener} can be reached from other machines, and the console asks for no "
            "login; set auth in console.toml (password, with `ottla console user add NAME --role "
            "admin`; proxy; sasl), or listen on 127.0.0.1, or add --insecure if it is meant"
        )
    if not settings.is_local and settings.scheme == "http" and not settings.trusted_proxies:
        raise BadSetting(
            f"{settings.listener} can be reached from other machines, and passwords would cross "
            "the network unencrypted; listen on https:// with tls_cert and tls_key, name the proxy "
            "that encrypts in trusted_proxies, or add --insecure if it is meant"
        )
    own = [one.name for one in settings.clusters if one.command_config]
    if own and not has_login:
        raise BadSetting(
            f"the console has credentials for cluster {own[0]!r} and asks for no login: everybody "
            "on this machine could use them; set auth in console.toml, or add --insecure if that "
            "is meant"
        )


def _check(settings: Settings) -> None:
    parts = _LISTENER.fullmatch(settings.listener)
    if parts is None or int(parts[3]) > 65_535:
        raise BadSetting(
            f"listener is http://HOST:PORT or https://HOST:PORT, not {settings.listener!r}"
        )
    if parts[1] == "https" and not (settings.tls_cert and settings.tls_key):
        raise BadSetting("a listener with https:// needs tls_cert and tls_key")
    if not (settings.base_path.startswith("/") and settings.base_path.endswith("/")):
        raise BadSetting(f"base_path begins and ends with '/', not {settings.base_path!r}")
    for key, known in CHOICES.items():
        value = getattr(settings, key)
        if value not in known:
            raise BadSetting(f"{key} is one of {', '.join(known)}, not {value!r:.80}")
    if settings.trace_url and not _TRACE_URL.fullmatch(settings.trace_url):
        raise BadSetting(
            "trace_url is a URL with {trace_id} in it, such as https://traces/trace/{trace_id}, "
            f"not {settings.trace_url!r:.80}"
        )
    _check_auth(settings)
    for key, least in LEAST.items():
        if getattr(settings, key) < least:
            raise BadSetting(f"{key} is at least {least}, not {getattr(settings, key)}")


def _check_auth(settings: Settings) -> None:
    for one in settings.trusted_proxies:
        try:
            ipaddress.ip_network(one, strict=False)
        except ValueError:
            raise BadSetting(
                f"trusted_proxies are addresses such as 10.0.0.5 or 10.0.0.0/24, not {one!r:.80}"
            ) from None
    if settings.auth == "proxy" and not settings.trusted_proxies:
        raise BadSetting(
            'auth = "proxy" needs trusted_proxies: without them everybody could send the header '
            f"{settings.proxy_user_header}"
        )
    if not _HEADER.fullmatch(settings.proxy_user_header):
        raise BadSetting(
            f"proxy_user_header is the name of a header, not {settings.proxy_user_header!r:.80}"
        )


def _of_file(file: Path) -> tuple[dict[str, Any], list[ClusterSettings]]:
    try:
        read = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BadSetting(f"cannot read {file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file} is not TOML: {error}") from error
    tables = read.pop("cluster", [])
    found: dict[str, Any] = {}
    if "attention" in read:
        found["attention"] = _thresholds(read.pop("attention"), str(file))
    for key, value in read.items():
        _known(key, {**_TOP, "cluster": None, "attention": None}, str(file))
        found[key] = _typed(key, value, str(file))
    if not isinstance(tables, list):
        raise BadSetting(f"{file}: write [[cluster]], with two brackets, for each cluster")
    return found, [_cluster(table, str(file)) for table in tables]


def _thresholds(table: object, where: str) -> tuple[tuple[str, float], ...]:
    from ottla.console.findings import Thresholds

    known = [one.name for one in fields(Thresholds)]
    if not isinstance(table, dict):
        raise BadSetting(f"{where}: write [attention], with one pair of brackets, once")
    for key, value in table.items():
        _known(key, known, f"{where}, [attention]")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise BadSetting(f"{where}, [attention]: {key} is a number above 0, not {value!r:.80}")
    return tuple(table.items())


_CLUSTER_KEYS: Final = (
    "name",
    "bootstrap",
    "command_config",
    "write",
    "mask",
    "hide",
    "decode",
    "registry",
)


def _cluster(table: Mapping[str, Any], where: str) -> ClusterSettings:
    for key in table:
        _known(key, _CLUSTER_KEYS, f"{where}, [[cluster]]")
    name = _text(table.get("name", "local"), "name", where)
    masks = [
        Mask(
            _text(one.get("topics"), "topics", where),
            tuple(_texts(one.get("fields"), "fields", where)),
            _text(one.get("with", "***"), "with", where),
        )
        for one in _parts_of(table, "mask", ("topics", "fields", "with"), where)
    ]
    for mask in masks:
        for path in mask.fields:
            if path.split(".")[0] not in ("key", "value", "headers"):
                raise BadSetting(
                    f"{where}: a masked field begins with key, value or headers, not {path!r}"
                )
    decoders = [
        Decode(
            _text(one.get("topics"), "topics", where),
            _format(one.get("key", "auto"), where),
            _format(one.get("value", "auto"), where),
        )
        for one in _parts_of(table, "decode", ("topics", "key", "value"), where)
    ]
    hidden = [
        _text(one.get("topics"), "topics", where)
        for one in _parts_of(table, "hide", ("topics",), where)
    ]
    write = table.get("write", False)
    if not isinstance(write, bool):
        raise BadSetting(f"{where}: write is true or false, not {write!r:.80}")
    return ClusterSettings(
        _checked_name(name),
        _text(table.get("bootstrap", "127.0.0.1:9092"), "bootstrap", where),
        _text(table.get("command_config", ""), "command_config", where),
        write,
        tuple(masks),
        tuple(hidden),
        tuple(decoders),
        registry=_registry(table.get("registry", ""), where),
    )


def _parts_of(
    table: Mapping[str, Any], name: str, keys: Iterable[str], where: str
) -> list[Mapping[str, Any]]:
    parts = table.get(name, [])
    if not isinstance(parts, list):
        raise BadSetting(f"{where}: write [[cluster.{name}]], with two brackets")
    for part in parts:
        for key in part:
            _known(key, keys, f"{where}, [[cluster.{name}]]")
    return parts


def _of_option(text: str, command_config: str, *, write: bool) -> ClusterSettings:
    name, equals, bootstrap = text.partition("=")
    if not equals:
        return ClusterSettings("local", text, command_config, write)
    return ClusterSettings(_checked_name(name), bootstrap, command_config, write)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadSetting(f"a cluster's name has letters, digits, - and _, not {name!r:.80}")
    return name


def _known(key: str, known: Iterable[str], where: str) -> None:
    names = list(known)
    if key in names:
        return
    near = difflib.get_close_matches(key, names, 1, 0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    raise BadSetting(f"{where}: unknown key {key!r:.80}; {advice}")


def _from_text(key: str, text: str, where: str) -> object:
    kind = _TOP[key].type
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise BadSetting(f"{where} is true or false, not {text!r:.80}")
        return text.lower() == "true"
    if kind == "int":
        try:
            return int(text)
        except ValueError:
            raise BadSetting(f"{where} is a number, not {text!r:.80}") from None
    if kind == "float":
        return _price(key, text, where)
    if kind == "tuple[str, ...]":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _typed(key: str, value: object, where: str) -> object:
    kind = _TOP[key].type
    if kind == "tuple[str, ...]":
        return tuple(_texts(value, key, where))
    if kind == "float":
        return _price(key, value, where)
    wanted = {"bool": bool, "int": int, "str": str}[str(kind)]
    if type(value) is not wanted:
        words = {bool: "true or false", int: "a whole number", str: "a text in quotes"}
        raise BadSetting(f"{where}: {key} is {words[wanted]}, not {value!r:.80}")
    return value


def _price(key: str, value: object, where: str) -> float:
    try:
        found = float(value) if isinstance(value, (str, int, float)) else math.nan
    except ValueError:
        found = math.nan
    if isinstance(value, bool) or not 0 <= found < math.inf:
        raise BadSetting(f"{where}: {key} is a number such as 0.023, not {value!r:.80}")
    return found


def _text(value: object, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise BadSetting(f"{where}: {key} is a text in quotes, not {value!r:.80}")
    return value


def _texts(value: object, key: str, where: str) -> list[str]:
    if not isinstance(value, list):
        raise BadSetting(f"{where}: {key} is a list of texts, not {value!r:.80}")
    return [_text(one, key, where) for one in value]


def _registry(value: object, where: str) -> str:
    url = _text(value, "registry", where)
    if url and not url.startswith(("http://", "https://")):
        raise BadSetting(f"{where}: registry is a URL such as http://HOST:8081, not {url!r:.80}")
    return url


def _format(value: object, where: str) -> str:
    text = _text(value, "a decoder", where)
    kind, _, place = text.partition(":")
    if kind in ("avro", "protobuf") and place:
        file = place.partition("#")[0] if kind == "protobuf" else place
        if not Path(file).is_file():
            raise BadSetting(f"{where}: there is no file {file!r} for the decoder {text!r:.80}")
    elif text not in FORMATS:
        known = ", ".join((*FORMATS, "avro:FILE", "protobuf:FILE#MESSAGE"))
        raise BadSetting(f"{where}: a decoder is one of {known}, not {text!r:.80}")
    return text
