"""Settings of the console: sources, nearest names, and starts that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli import console as cli
from ottla.console.findings import Thresholds
from ottla.console.serve import make_app
from ottla.console.settings import BadSetting, Settings, check_exposure, load, settled

if TYPE_CHECKING:
    from pathlib import Path


def of_file(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "console.toml"
    file.write_text(text)
    return load(file, {}, {}, [])


def test_defaults_are_a_broker_on_this_machine() -> None:
    settings = load(None, {}, {}, [])
    assert settings.listener == "http://127.0.0.1:9095"
    assert [(one.name, one.bootstrap) for one in settings.clusters] == [("local", "127.0.0.1:9092")]
    check_exposure(settings, insecure=False)


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "console.toml"
    file.write_text('listener = "http://127.0.0.1:1"\nmax_searches = 3\nsearch_max_s = 4\n')
    env = {"OTTLA_CONSOLE_LISTENER": "http://127.0.0.1:2", "OTTLA_CONSOLE_SEARCH_MAX_S": "5"}
    settings = load(file, env, {"listener": "http://127.0.0.1:3"}, [])
    assert (settings.listener, settings.max_searches, settings.search_max_s) == (
        "http://127.0.0.1:3",
        3,
        5,
    )


def test_clusters_have_names() -> None:
    settings = load(None, {}, {}, ["eu=h1:9092,h2:9092", "us=h3:9092"])
    assert [(one.name, one.bootstrap) for one in settings.clusters] == [
        ("eu", "h1:9092,h2:9092"),
        ("us", "h3:9092"),
    ]
    with pytest.raises(BadSetting, match="names that differ"):
        load(None, {}, {}, ["h1:9092", "h2:9092"])


def test_brokers_given_elsewhere_do_not_replace_the_clusters_of_a_file(tmp_path: Path) -> None:
    """Masks and hidden topics of these clusters would go with them."""
    file = tmp_path / "console.toml"
    file.write_text('[[cluster]]\nname = "eu"\nbootstrap = "h:9092"\n')
    with pytest.raises(BadSetting, match=r"names clusters, and --bootstrap names h:9092; add"):
        load(file, {}, {}, ["h:9092"])
    assert load(file, {}, {}, [], otherwise=["other:9092"]).clusters[0].bootstrap == "h:9092"
    assert load(None, {}, {}, [], otherwise=["other:9092"]).clusters[0].bootstrap == "other:9092"


def test_the_environments_brokers_keep_the_clusters_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTTLA_BOOTSTRAP is there for all commands; on the command line it is meant."""
    (tmp_path / "console.toml").write_text('[[cluster]]\nname = "eu"\nbootstrap = "h:9092"\n')
    served: list[Settings] = []
    monkeypatch.setattr(cli, "_bound", lambda _: [])
    monkeypatch.setattr(cli, "_run", lambda settings, *_, **__: served.append(settings))
    arguments = ["--config", str(tmp_path / "console.toml")]
    runner = CliRunner(env={"OTTLA_BOOTSTRAP": "other:9092"})
    assert runner.invoke(cli.app, arguments).exit_code == 0
    assert runner.invoke(cli.app, []).exit_code == 0
    assert [one.clusters[0].bootstrap for one in served] == ["h:9092", "other:9092"]
    refused = runner.invoke(cli.app, [*arguments, "--bootstrap", "other:9092"])
    assert refused.exit_code == 2
    assert "leave out one of the two" in refused.output


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    settings = of_file(
        tmp_path,
        """
        base_path = "/kafka/"
        hosts = ["console.example"]
        [[cluster]]
        name = "eu"
        bootstrap = "h:9092"
        [[cluster.mask]]
        topics = "orders.*"
        fields = ["value.customer.email", "headers.authorization"]
        [[cluster.hide]]
        topics = "payroll"
        [[cluster.decode]]
        topics = "telemetry"
        value = "msgpack"
        """,
    )
    [cluster] = settings.clusters
    assert settings.base_path == "/kafka/"
    assert settings.hosts == ("console.example",)
    assert cluster.masks[0].fields == ("value.customer.email", "headers.authorization")
    assert cluster.hidden == ("payroll",)
    assert cluster.decoders[0].value == "msgpack"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('listner = "x"', "did you mean 'listener'"),
        ('[[cluster]]\nbootstap = "h:1"', "did you mean 'bootstrap'"),
        ('[[cluster]]\n[[cluster.mask]]\ntopic = "x"', "did you mean 'topics'"),
        ("max_searches = true", "max_searches is a whole number"),
        ("max_searches = 0", "at least 1"),
        ('listener = "127.0.0.1:9095"', "http://HOST:PORT"),
        ('listener = "https://127.0.0.1:9095"', "needs tls_cert and tls_key"),
        ('base_path = "kafka"', "begins and ends with '/'"),
        ('[[cluster]]\n[[cluster.mask]]\ntopics = "x"\nfields = ["body.x"]', "begins with key"),
        ('[[cluster]]\n[[cluster.decode]]\ntopics = "x"\nvalue = "xml"', "a decoder is one of"),
        ("[cluster]\nname = 1", "two brackets"),
        ("a = ", "is not TOML"),
        ("[attention]\nlags = 3", "did you mean 'lag_s'"),
        ("[attention]\nlag_s = true", "a number above 0"),
        ("[attention]\nlag_s = 0", "a number above 0"),
        ("attention = 3", r"write \[attention\]"),
        ('auth = "oidc"', "auth is one of auto, none, password, proxy, sasl"),
        ('auth = "proxy"', "needs trusted_proxies"),
        ('trusted_proxies = ["proxy.example"]', "are addresses such as"),
        ('proxy_user_header = "X User"', "the name of a header"),
    ],
)
def test_case_9_a_wrong_key_or_value_is_an_error_that_names_the_way_out(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(BadSetting, match=said):
        of_file(tmp_path, text)


def test_case_9_wrong_variables_are_errors_too() -> None:
    with pytest.raises(BadSetting, match="did you mean 'max_searches'"):
        load(None, {"OTTLA_CONSOLE_MAX_SEARCH": "1"}, {}, [])
    with pytest.raises(BadSetting, match="is a number"):
        load(None, {"OTTLA_CONSOLE_MAX_SEARCHES": "many"}, {}, [])
    load(None, {"OTTLA_CONSOLE_IDLE_EXIT_MS": "1", "OTTLA_BOOTSTRAP": "x"}, {}, [])


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "console.example", "[::]"])
def test_case_8_a_console_that_others_reach_is_refused(host: str) -> None:
    settings = load(None, {}, {"listener": f"http://{host}:9095"}, [])
    with pytest.raises(BadSetting, match="asks for no login"):
        check_exposure(settings, insecure=False)
    check_exposure(settings, insecure=True)


def test_case_8_a_login_and_encryption_let_it_serve(tmp_path: Path) -> None:
    def check(text: str) -> None:
        check_exposure(of_file(tmp_path, text), insecure=False)

    outside = 'listener = "http://0.0.0.0:9095"\n'
    with pytest.raises(BadSetting, match="ottla console user add NAME --role admin"):
        check(outside)
    with pytest.raises(BadSetting, match="unencrypted"):
        check(f'{outside}auth = "password"')
    check(f'{outside}auth = "password"\ntrusted_proxies = ["10.0.0.5"]')
    check('listener = "https://0.0.0.0:9095"\nauth = "sasl"\ntls_cert = "c"\ntls_key = "k"')
    check('auth = "password"')


def test_thresholds_of_rules_can_be_set(tmp_path: Path) -> None:
    settings = of_file(tmp_path, "[attention]\nlag_s = 300\nhog_share = 0.5\n")
    assert settings.attention == (("lag_s", 300), ("hog_share", 0.5))
    found = make_app(settings).state.console.clusters["local"].cluster._thresholds
    assert (found.lag_s, found.hog_share, found.idle_s) == (300, 0.5, Thresholds().idle_s)


def test_auto_is_sasl_where_a_file_says_how_but_not_who(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    how = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
    who = (
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="a" password="b";\n'
    )
    for text, auth in ((how, "sasl"), (how + who, "none"), ("", "none")):
        file.write_text(text)
        assert settled(load(None, {}, {}, ["h:9092"], str(file))).auth == auth
    assert settled(load(None, {}, {"auth": "password"}, ["h:9092"], "nowhere")).auth == "password"
    with pytest.raises(BadSetting, match="cannot read nowhere"):
        settled(load(None, {}, {}, ["h:9092"], "nowhere"))


def test_case_72_credentials_without_a_login_are_refused() -> None:
    settings = load(None, {}, {}, ["h:9092"], "client.properties")
    with pytest.raises(BadSetting, match="everybody on this machine could use them"):
        check_exposure(settings, insecure=False)
    check_exposure(settings, insecure=True)
