"""The chart of a transaction: its messages between the producer, the brokers and the consumers."""

from typing import TYPE_CHECKING

from odradek.lab.pictures.charts import Arrow, Exchange

if TYPE_CHECKING:
    from odradek.lab.transaction import Played


def transaction_chart(played: "Played") -> Exchange:
    """Return the chart of a transaction that was played."""
    seen = [name for step in played.steps for name in (step.source, step.target)]
    hosts = sorted(played.roles)
    producers = dict.fromkeys(name for name in seen if name not in hosts and not name.startswith("read_"))
    readers = sorted({name for name in seen if name.startswith("read_")})
    columns = [*producers, *hosts, *readers]
    roles = {host: "\n" + role.replace(", ", "\n") for host, role in played.roles.items()}
    names = [name.replace("read_", "read_\n") + roles.get(name, "") for name in columns]
    arrows = [
        Arrow(
            label=f"{step.at_ms:,.1f} ms",
            source=columns.index(step.source),
            target=columns.index(step.target),
            text=step.event,
            cells=(step.state, *(f"{stable}/{end}" for stable, end in step.offsets.values())),
        )
        for step in played.steps
    ]
    return Exchange(
        title=played.title,
        names=tuple(names),
        headings=("state", *played.steps[0].offsets),
        arrows=tuple(arrows),
        notice="The columns of partitions have LSO/END: read_committed consumers read up to the LSO, others up to END.",
    )
