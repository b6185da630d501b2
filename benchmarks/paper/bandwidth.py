"""Table "bandwidth" of the paper: 16 hosts behind slow links.

    python -m benchmarks.paper.bandwidth [--data FOLDER] [--quick]

Hosts are network namespaces of this machine (see benchmarks.network): Linux, root and iproute2 are needed.
A learner is measured at every bandwidth where that takes little enough, otherwise extrapolated from its bytes:

    extrapolated = seconds of a round without a limit + bytes of the busiest host, one way / bandwidth

Nothing overlaps in it, and waiting for other messages is not in it: measured cells show both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell, Finding
from benchmarks.network.learners import KINDS, Team, to_json
from benchmarks.network.measure import parse_bandwidth, parse_limit
from benchmarks.paper.experiment import Experiment, Picture, Plan, draw_panels, main
from benchmarks.paper.figures import BANDWIDTH_SECONDS, BANDWIDTHS, HOSTS
from benchmarks.paper.scaling import QUICK_SIZES, SIZES, label_panel, make_cell, make_sources
from benchmarks.report import COLOURS, Row, cell, goal, plot_line
from benchmarks.timing import Failed, ratio

TEXT = """The paper: Spark on 16 machines, KDD12.sub, the bandwidth of each limited from 1 GB/s to 100 KB/s, 64 and 1024
outputs or leaves, seconds of a round. Here: 16 hosts that are network namespaces of one machine, each with an interface
of that bandwidth both ways and one thread; row i belongs to host i mod 16. GBUN uses its own collective (float32),
XGBoost (hist, level by level: 6 levels for 64 leaves, 10 for 1024) its tracker and collective, LightGBM
(tree_learner=data, with its bundles of features and its other defaults) its sockets. LightGBM's tree_learner=voting,
which sends less and grows other trees, is left out. LightGBM leaves out features that fewer rows of a host have than a
leaf needs, of both sets nearly all, and sends less for it: the table of trees has the number of features it uses. Bytes
are those of the interfaces' counters. KDD12.sub is generated in the paper's shape; book_crossing is real and has twice
the features. At each bandwidth there are rounds of about 5 seconds, of GBUN at least 5 rounds and of a peer at least
one.

All hosts share the cores of this machine, so a round without a limit is bound by computation that 16 machines would
share: "network s" is what a limit adds to it, "a core each s" is the computation of the busiest host plus its bytes
over the bandwidth. There is no delay except that of queues, which favours the peers, whose rounds have many more steps.
A cell whose round would take more than ten minutes is extrapolated: seconds without a limit
plus the bytes of the busiest host over the bandwidth; measured cells show the same figure beside theirs. XGBoost's
trees stop where nothing is gained, so on book_crossing they have far fewer leaves than they may, and the number varies
between rounds: where a measured cell takes longer than its extrapolation, extrapolated ones are too small. XGBoost
holds histograms of all features for all nodes of a tree. Where 16 hosts together do not fit into this machine, larger
trees are extrapolated from smaller ones, and marked: a worker alone grows trees of both sizes on all rows, and bytes
are multiplied by the ratio of the histograms that its trees have summed, computation by that of its seconds of a core.
"""

CAPTION = "Seconds of a round by bandwidth. Hollow marks are extrapolated; dotted lines are the paper's."
# In the quick form XGBoost is measured at the one bandwidth and extrapolated at the other.
QUICK_HOSTS, QUICK_BANDWIDTHS = 2, ("1MB", "100KB")
SECONDS, QUICK_SECONDS = 5.0, 0.5  # of rounds at each bandwidth
MOST_SECONDS, QUICK_MOST_SECONDS = 600.0, 5.0  # a longer round is extrapolated
GOALS = {("1MB", "LightGBM"): 10, ("1MB", "XGBoost"): 100, ("100KB", "LightGBM"): 50, ("100KB", "XGBoost"): 1000}
GOAL_SIZE = 64
TREES = ("leaves", "histograms", "bins", "features used")
FREE = "no limit"
MEASURED, EXTRAPOLATED = "measured", "extrapolated"
Place = dict[str, Any]
"""What is known of one bandwidth: seconds, how they were found, bytes, and a note."""


def cells(plan: Plan) -> list[Cell]:
    hosts, limits = plan.pick((HOSTS, BANDWIDTHS), (QUICK_HOSTS, QUICK_BANDWIDTHS))
    sizes, seconds = plan.pick(SIZES, QUICK_SIZES), plan.pick(SECONDS, QUICK_SECONDS)
    most = plan.pick(MOST_SECONDS, QUICK_MOST_SECONDS)
    # Learners one after the other, so that they meet the machine in the same state.
    wanted = [(learner, size, hosts) for size in sizes for learner in KINDS]
    if len(sizes) > 1:  # for those that fail on all hosts
        wanted += [("XGBoost", size, 1) for size in sizes]
    found = []
    for rows, (learner, size, n_hosts) in product(make_sources(plan).values(), wanted):
        bandwidths = limits if n_hosts > 1 else ()
        settings = {"hosts": n_hosts, "bandwidths": bandwidths, "seconds": seconds, "most seconds": most}
        work = partial(measure_bandwidths, bandwidths=bandwidths, seconds=seconds, most=most)
        found.append(make_cell("alone" if n_hosts == 1 else f"{n_hosts} hosts", learner, size, rows, settings, work))
    return found


def measure_bandwidths(team: Team, bandwidths: Sequence[str], seconds: float, most: float) -> dict[str, Any]:
    """Rounds of `seconds` at each bandwidth; where a round would take more than `most`, it is extrapolated."""
    free = team.measure(None, team.round_seconds, seconds)
    trees = team.describe_trees()
    places = {FREE: {**to_json(free), "how": MEASURED}}
    gone = ""  # why the workers are gone, if they are: then the rest can only be extrapolated
    for bandwidth in bandwidths:
        rate = parse_limit(bandwidth)
        expected = free.seconds + free.most / rate  # where nothing overlaps
        place = {"seconds": expected, "extrapolated": expected, "how": EXTRAPOLATED}
        place = places[bandwidth] = {**place, "sent": places[FREE]["sent"], "most": free.most, "note": gone}
        if gone or expected > most:
            continue
        try:
            place |= {**to_json(team.measure(rate, expected, seconds)), "how": MEASURED}
        except Failed as failure:
            place["note"] = gone = str(failure)
    return {"round s": free.seconds, "bytes": round(free.most), "setup s": team.setup, **trees, "places": places}


@dataclass(frozen=True)
class Line:
    """A learner of one size on one data set: its place at every bandwidth, or why there is none; a peer's trees."""

    data: str
    size: int
    learner: str
    hosts: int
    places: Mapping[str, Place]
    failed: str = ""
    trees: Row = field(default_factory=dict)

    def row(self, table: str) -> Row:
        return {"table": table, "data": self.data, "size": self.size, "learner": self.learner}

    def paper_seconds(self, bandwidth: str) -> float | None:
        """The paper's figure of the same, if it has one."""
        return BANDWIDTH_SECONDS.get((self.data, self.hosts, self.size, self.learner, bandwidth))


def make_lines(findings: Sequence[Finding]) -> list[Line]:
    """A line for each finding, and, where XGBoost needs too much memory, what smaller trees say of larger ones."""
    lines = []
    for one in findings:
        series = (one.settings[key] for key in ("data", "size", "learner", "hosts"))
        trees = {key: one.found[key] for key in TREES if key in one.found}
        lines.append(Line(*series, one.found.get("places", {}), one.failed, trees))
    large = [line for line in lines if line.learner == "XGBoost" and "out of memory" in line.failed]
    derived = [more for line in large for more in _derive(line, lines)]
    return sorted([*lines, *derived], key=lambda line: (line.data, line.size, line.learner, -line.hosts))


def _derive(failed: Line, lines: Sequence[Line]) -> Iterator[Line]:
    """From the largest trees that these hosts did grow, and from trees of both sizes that a worker grew alone: bytes
    grow with the histograms that are summed, computation with the seconds of a core."""
    known = [line for line in lines if (line.data, line.learner) == (failed.data, failed.learner) and line.places]
    alone = {line.size: line for line in known if line.hosts == 1}
    few = max((line.size for line in known if line.hosts == failed.hosts and line.size in alone), default=None)
    if few is None or failed.size not in alone or failed.hosts == 1:
        return
    base = next(line for line in known if (line.size, line.hosts) == (few, failed.hosts)).places
    small, large, free = alone[few], alone[failed.size], base[FREE]
    more_bytes = large.trees["histograms"] / small.trees["histograms"]
    more_work = large.places[FREE]["busiest cpu"] / small.places[FREE]["busiest cpu"]
    sent, most = (free[key] * more_bytes for key in ("sent", "most"))
    seconds, busiest, mean = (free[key] * more_work for key in ("seconds", "busiest cpu", "mean cpu"))
    common = {"how": f"{EXTRAPOLATED} from {few} leaves", "sent": sent, "most": most}
    common |= {"busiest cpu": busiest, "mean cpu": mean}
    rates = {bandwidth: parse_bandwidth(bandwidth) for bandwidth in base}
    places = {name: {**common, "seconds": seconds + (most / rate if rate else 0.0)} for name, rate in rates.items()}
    yield Line(failed.data, failed.size, failed.learner, failed.hosts, places)


def tables(findings: Sequence[Finding]) -> list[Row]:
    """One table like the paper's, one with every cell, one of the peers' trees, and the goals."""
    lines = make_lines(findings)
    every = (row for line in lines for row in _every_cell(line))
    title = "bandwidth: a peer's trees as they grew, means; a histogram of XGBoost is 16 bytes for each bin"
    trees = [{**line.row(title), "hosts": line.hosts, **line.trees} for line in lines if line.trees]
    return [*_like_the_paper(lines), *every, *trees, *goals(lines)]


def _like_the_paper(lines: Sequence[Line]) -> Iterator[Row]:
    title = 'bandwidth: seconds of a round; "e" is extrapolated from bytes, "E" also from trees of fewer leaves'
    marks = {MEASURED: "", EXTRAPOLATED: " e"}
    for line in (line for line in lines if line.hosts > 1):  # others are grown alone, only to extrapolate from
        seconds = {name: cell(place["seconds"]) + marks.get(place["how"], " E") for name, place in line.places.items()}
        yield {**line.row(title), **seconds, "note": line.failed}
        paper = {bandwidth: line.paper_seconds(bandwidth) for bandwidth in BANDWIDTHS}
        if any(paper.values()) and not line.failed:
            seconds = {bandwidth: cell(value) for bandwidth, value in paper.items()}
            yield {**line.row(title), "learner": f"the paper's {line.learner}", **seconds}


def _every_cell(line: Line) -> Iterator[Row]:
    hosts = "a worker alone" if line.hosts == 1 else f"{line.hosts} hosts"
    title = f"bandwidth: every cell, {hosts}; bytes are of a host and round, at its interface"
    if line.failed:
        yield {**line.row(title), "note": line.failed}
    for bandwidth, place in line.places.items():
        rate, free = parse_bandwidth(bandwidth), line.places[FREE]
        measured = place["how"] == MEASURED
        yield {
            **line.row(title),
            "bandwidth": bandwidth,
            "seconds": place["seconds"],
            "how": place["how"],
            "rounds": place.get("rounds"),
            "deviation s": place.get("deviation"),
            "extrapolated s": place.get("extrapolated"),
            "measured / extrapolated": ratio(place["seconds"], place.get("extrapolated")) if measured else None,
            "network s": place["seconds"] - free["seconds"] if rate else None,
            "busiest cpu s": free["busiest cpu"],
            "a core each s": free["busiest cpu"] + free["most"] / rate if rate else free["busiest cpu"],
            "sent": round(place["sent"]),
            "busiest": round(place["most"]),
            "paper s": line.paper_seconds(bandwidth),
            "note": place.get("note", ""),
        }


def goals(lines: Sequence[Line]) -> list[Row]:
    """How many times quicker a round of GBUN is, at the paper's hosts and K = 64."""
    rows = []
    for data in dict.fromkeys(line.data for line in lines if line.hosts == HOSTS):
        here = data, GOAL_SIZE, HOSTS
        places = {line.learner: line.places for line in lines if (line.data, line.size, line.hosts) == here}
        for (bandwidth, peer), least in GOALS.items():
            ours, theirs = (places.get(learner, {}).get(bandwidth, {}) for learner in ("GBUN", peer))
            both = {peer: theirs, "GBUN": ours}
            how = "".join(f", {who} {at['how']}" for who, at in both.items() if at.get("how", MEASURED) != MEASURED)
            known = [BANDWIDTH_SECONDS["KDD12.sub", HOSTS, GOAL_SIZE, who, bandwidth] for who in (peer, "GBUN")]
            what = f"{data}: {peer}'s seconds / GBUN's at {bandwidth}/s, K = {GOAL_SIZE}{how}"
            what += f"; the paper: {known[0] / known[1]:.0f}"
            rows.append(goal(data, what, ratio(theirs.get("seconds"), ours.get("seconds")), least=least))
    return rows


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    known = [line for line in make_lines(findings) if line.places and line.hosts > 1]
    panels = [partial(_panel, panel, known) for panel in sorted({(line.data, line.size) for line in known})]
    return draw_panels(panels, folder / "bandwidth.png", CAPTION, 4.0)


def _panel(panel: tuple[str, int], lines: Sequence[Line], ax: Any) -> None:
    for one in lines:
        if (one.data, one.size) != panel:
            continue
        colour = COLOURS[one.learner]
        places = {rate: place for text, place in one.places.items() if (rate := parse_bandwidth(text)) is not None}
        plot_line(ax, [(rate, place["seconds"]) for rate, place in places.items()], "-", colour, one.learner)
        for rate, place in places.items():
            filled = colour if place["how"] == MEASURED else "white"
            ax.plot([rate], [place["seconds"]], "o", color=colour, markerfacecolor=filled)
        paper = [(parse_bandwidth(bandwidth), one.paper_seconds(bandwidth)) for bandwidth in BANDWIDTHS]
        plot_line(ax, paper, ":", colour, f"the paper's {one.learner}")
    label_panel(ax, panel, "bytes a second of each host")


EXPERIMENT = Experiment("bandwidth", "Slow networks", TEXT, cells, tables, draw)

if __name__ == "__main__":
    main(EXPERIMENT)
