"""Writes the Grafana dashboard and the alert rules that the wheel carries.

    python scripts/generate_dashboards.py            writes src/ottla/console/dashboards/
    python scripts/generate_dashboards.py --check    fails if they are not what this writes

`ottla console dashboards DIR` copies them. A test compares every query with the metrics that the
console and the broker have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).parents[1] / "src" / "ottla" / "console" / "dashboards"
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
WIDTH: Final = 8
HEIGHT: Final = 7
PER_ROW: Final = 24 // WIDTH


class Panel(NamedTuple):
    """`query` has `{I}` where the instance is chosen."""

    title: str
    query: str
    legend: str
    unit: str = "short"


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Cluster": (
        Panel("Needs attention", "ottla_console_attention{I} > 0", "{{cluster}} {{word}}"),
        Panel("Brokers answer", "ottla_console_cluster_up{I}", "{{cluster}}"),
        Panel("Connections", "ottla_connections{I}", "{{instance}}"),
        Panel("Requests", "rate(ottla_requests_total{I}[5m])", "{{api}}", "reqps"),
        Panel("Processor", "rate(ottla_cpu_seconds_total{I}[5m])", "{{instance}}", "percentunit"),
        Panel("Console: time of a sample", "ottla_console_sample_seconds{I}", "{{cluster}}", "s"),
    ),
    "Topics": (
        Panel(
            "Records in",
            "sum by (cluster, topic) (rate(ottla_partition_end_offset{I}[5m]))",
            "{{topic}}",
            "cps",
        ),
        Panel("Records", "ottla_topic_records{I}", "{{topic}}"),
        Panel("Size on disk", "sum by (topic) (ottla_log_size_bytes{I})", "{{topic}}", "bytes"),
    ),
    "Groups": (
        Panel(
            "Lag in records", "sum by (cluster, group) (ottla_group_lag_records{I})", "{{group}}"
        ),
        Panel(
            "Lag in seconds",
            "max by (cluster, group) (ottla_group_lag_seconds{I})",
            "{{group}}",
            "s",
        ),
        Panel(
            "Taken",
            "sum by (cluster, group) (rate(ottla_group_committed_offset{I}[5m]))",
            "{{group}}",
            "cps",
        ),
    ),
    "Queues": (
        Panel(
            "To settle",
            "sum by (cluster, group) (ottla_share_group_lag_records{I})",
            "{{group}}",
        ),
        Panel(
            "Lag in seconds",
            "max by (cluster, group) (ottla_share_group_lag_seconds{I})",
            "{{group}}",
            "s",
        ),
        Panel("In flight", "sum by (group) (ottla_share_in_flight_records{I})", "{{group}}"),
        Panel(
            "Delivered",
            "sum by (group) (rate(ottla_share_delivered_records_total{I}[5m]))",
            "{{group}}",
            "cps",
        ),
        Panel(
            "Dead letters",
            "sum by (group) (increase(ottla_share_dead_letters_total{I}[1h]))",
            "{{group}}",
        ),
    ),
    "Tier": (
        Panel("Errors", "ottla_tier_error{I}", "{{where}} {{error}}"),
        Panel("Events to fold", "ottla_tier_catalogue_lag{I}", "{{instance}}"),
        Panel("Copy pace", "ottla_tier_copy_pace_bytes_per_second{I}", "{{instance}}", "Bps"),
    ),
    "Transactions": (
        Panel("Transactional ids", "sum by (state) (ottla_transactional_ids{I})", "{{state}}"),
        Panel("Timed out", "increase(ottla_transactions_timed_out_total{I}[1h])", "{{instance}}"),
    ),
}


class Alert(NamedTuple):
    """A rule of the overview: `word` is what the page calls it."""

    rule: str
    word: str
    says: str
    severity: str = "warning"


ALERTS: Final = (
    Alert("A1", "DOWN", "a broker cannot be reached", "critical"),
    Alert("A2", "OFFLINE", "a partition has no leader, or a log directory is offline", "critical"),
    Alert("A3", "DISK", "a disk is nearly full", "critical"),
    Alert("A4", "LAG", "a group is more than a minute behind and falls back further"),
    Alert("A5", "LOST", "records were deleted before a group took them", "critical"),
    Alert("A5", "IDLE", "a group is behind and has no member"),
    Alert("A6", "REBALANCING", "a group has not been stable for a minute"),
    Alert("A7", "STALLED", "a queue does not move"),
    Alert("A8", "LAST TRY", "a record of a queue is at its last delivery, or one member holds all"),
    Alert("A9", "LETTERS", "more dead letters than usual"),
    Alert("A10", "TXN", "a transaction has been open for more than a minute"),
    Alert("A11", "TIER", "a copy to the tier does not end, or its catalogue cannot be read"),
    Alert("A12", "PIPELINE", "a flow of a pipeline failed, restarts all the time, or is silent"),
    Alert("A13", "NODE", "a node drains or is fenced for more than five minutes"),
    Alert("A14", "TABLE", "a table is far behind its topic, or the topic is gone"),
    Alert("A15", "CERT", "the certificate of a broker ends within two weeks"),
)


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row, members in ROWS.items():
        place = {"h": 1, "w": 24, "x": 0, "y": top}
        panels.append(
            {"type": "row", "title": row, "id": len(panels) + 1, "gridPos": place, "panels": []}
        )
        top += 1
        for number, one in enumerate(members):
            at = {
                "h": HEIGHT,
                "w": WIDTH,
                "x": number % PER_ROW * WIDTH,
                "y": top + number // PER_ROW * HEIGHT,
            }
            panels.append(_panel(one, len(panels) + 1, at))
        top += -(-len(members) // PER_ROW) * HEIGHT
    return {
        "title": "Ottla",
        "uid": "ottla",
        "tags": ["kafka", "ottla"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "instance",
                    "label": "Instance",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": 'label_values({__name__=~"ottla_.+"}, instance)',
                    "includeAll": True,
                    "multi": True,
                    "refresh": 2,
                },
            ]
        },
        "panels": panels,
    }


def _panel(one: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": one.title,
        "id": number,
        "datasource": SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": "A",
                "expr": one.query.replace("{I}", '{instance=~"$instance"}'),
                "legendFormat": one.legend,
            }
        ],
    }


def alerts() -> str:
    """Rules of Prometheus; the console's rules decide, so page and alert agree."""
    lines = [
        "# Written by scripts/generate_dashboards.py.",
        "groups:",
        "  - name: ottla",
        "    rules:",
    ]
    for one in ALERTS:
        name = "Ottla" + "".join(part.capitalize() for part in one.word.split())
        expression = f'ottla_console_attention{{word="{one.word}"}} > 0'
        lines += [
            f"      - alert: {name}",
            f"        expr: {json.dumps(expression)}",
            "        for: 1m",
            "        labels:",
            f"          severity: {one.severity}",
            f"          rule: {one.rule}",
            "        annotations:",
            f'          summary: "{{{{ $labels.cluster }}}}: {one.says}"',
            '          description: "{{ $value }} to look at; the console\'s overview has more."',
        ]
    lines += [
        "      - alert: OttlaConsoleAway",
        '        expr: "ottla_console_cluster_up == 0"',
        "        for: 1m",
        "        labels:",
        "          severity: critical",
        "        annotations:",
        '          summary: "{{ $labels.cluster }}: no broker answers the console"',
    ]
    return "\n".join(lines) + "\n"


def files() -> dict[str, str]:
    return {
        "ottla.json": json.dumps(dashboard(), indent=1) + "\n",
        "alerts.yaml": alerts(),
    }


def main() -> int:
    stale = []
    for name, text in files().items():
        file = HERE / name
        if not file.exists() or file.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"{', '.join(stale)}: run python scripts/generate_dashboards.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
