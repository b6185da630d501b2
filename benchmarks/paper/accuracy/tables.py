"""The findings as tables: the ten sets, the tabular ones, wins and losses, settings, and the goals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.cells import Finding, NotRun
from benchmarks.paper.accuracy.judging import NOISE, Standing, compare, compare_all, rows_variance, verdict
from benchmarks.paper.accuracy.sets import MOST_TABULAR_ROWS, TEN
from benchmarks.paper.accuracy.spaces import BOOSTERS, LEARNERS
from benchmarks.paper.figures import GRID, SCORES, TITLES
from benchmarks.report import Row, goal

PROTOCOL = "paper's protocol"
NOISE_IN_WORDS = f"within noise: {NOISE:g} standard errors of the difference, row by row and over seeds"
MAIN = f"accuracy: test rows, mean ± deviation over seeds, and rounds of the first ({NOISE_IN_WORDS})"
TABULAR = f"accuracy: tabular sets, at most {MOST_TABULAR_ROWS:,} rows ({NOISE_IN_WORDS})"
DUELS = f"accuracy: tabular sets on which gbun wins, ties and loses ({NOISE_IN_WORDS})"
SETTINGS = "accuracy: settings found"
UNPAIRED = "compared with an earlier training of gbun only: measure it again"
LEAST_SETS = 7


def tables(findings: Sequence[Finding]) -> list[Row]:
    names = dict.fromkeys(finding.settings["data"] for finding in findings)
    boards = [Board(name, [one for one in findings if one.settings["data"] == name]) for name in names]
    main, tabular = ([board for board in boards if board.tabular is which] for which in (False, True))
    return [
        *(board.row(MAIN) | board.beside_paper() for board in main),
        *(board.row(TABULAR) for board in tabular),
        *duels(tabular),
        *(row for board in boards for row in board.settings()),
        *goals(main),
    ]


def summarise(findings: Sequence[Finding]) -> list[Finding]:
    """Replace what each row contributes to a score by the outcome of the paired test against gbun."""
    ours = {finding.settings["data"]: finding for finding in findings if finding.settings.get("learner") == "gbun"}
    summaries = []
    for finding in findings:
        found = {name: value for name, value in finding.found.items() if name != "answers"}
        gbun = ours.get(finding.settings["data"])
        if "answers" in finding.found and gbun not in (None, finding) and "answers" in gbun.found:
            found["paired"] = {"date": gbun.about.get("date"), "variance": _variance(finding, gbun)}
        summaries.append(replace(finding, found=found))
    return summaries


def _variance(finding: Finding, gbun: Finding) -> float | None:
    """Of the difference from gbun, from both learners' rows, or from a summary that was made with this gbun."""
    if "answers" in finding.found and "answers" in gbun.found:
        return rows_variance(gbun.found["answers"], finding.found["answers"])
    paired = finding.found.get("paired", {})
    return paired["variance"] if paired and paired["date"] == gbun.about.get("date") else None


class Board:
    """What is known of one set. A peer that cannot be compared row by row counts as not run."""

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.name = name
        self.tabular, self.budget = bool(findings[0].settings["tabular"]), findings[0].settings["budget"]
        self.tuned = {one.settings["learner"]: one for one in findings if "learner" in one.settings}
        self.protocol = next((one for one in findings if one.name.endswith(PROTOCOL)), None)
        self.standing: dict[str, Standing] = {}
        gbun = self.tuned.get("gbun")
        for learner, finding in list(self.tuned.items()):
            if finding.failed:
                continue
            variance = 0.0 if gbun in (None, finding) or gbun.failed else _variance(finding, gbun)
            if variance is None:
                self.tuned[learner] = NotRun(**{**vars(finding), "found": {}, "failed": UNPAIRED})
                continue
            found, title = finding.found, LEARNERS[learner].title
            seeds = len(found["refits"])
            self.standing[learner] = Standing(title, found["mean"], found["deviation"], seeds, variance)
        self.ours = self.standing.get("gbun")
        self.peers = [self.standing[who] for who in BOOSTERS if who != "gbun" and who in self.standing]
        run = [who for who, finding in self.tuned.items() if not isinstance(finding, NotRun)]
        self.was_run, self.complete = bool(run), set(BOOSTERS) <= set(run)
        self.without = [LEARNERS[who].title for who in BOOSTERS if who not in self.standing]
        # Boosters without a figure for another reason than time or memory: they were not run, or ended with an error
        # and may have been called the wrong way.
        broken = re.compile("(Error|Exception):|died with exit code")
        fair = [who for who in run if not broken.search(self.tuned[who].failed)]
        self.untried = [LEARNERS[who].title for who in BOOSTERS if who not in fair]

    @property
    def held(self) -> bool:
        """Whether gbun is the best booster, or within noise of it."""
        return bool(self.ours and self.peers and not self.untried and compare_all(self.ours, self.peers) >= 0)

    def row(self, table: str) -> Row:
        known = next((finding.found for finding in self.tuned.values() if finding.found), {})
        words = verdict(self.ours, self.peers, self.standing.get("linear"))
        if self.without:
            words += f"; without {', '.join(self.without)}"
        row: Row = {"table": table, "data": self.name, "verdict": words, "metric": known.get("metric")}
        row |= {LEARNERS[who].title: _score(finding) for who, finding in self.tuned.items()}
        row |= {"train rows": known.get("rows"), "test rows": known.get("test rows"), "features": known.get("features")}
        return row | {"budget s": self.budget}

    def beside_paper(self) -> Row:
        """What the paper prints, and gbun by the paper's rules."""
        printed = {f"paper's {TITLES[who]}": value for who, value in SCORES.get(self.name, {}).items()}
        gbun = self.tuned.get("gbun")
        row: Row = {"gbun by the paper's metric": gbun.found["papers"] if gbun and gbun.found else None, **printed}
        if self.protocol is not None:
            found = self.protocol.found
            words = self.protocol.failed or f"{found['best']:.4f} ({found['points']} of {GRID} points)"
            row["paper's protocol, chosen on test rows"] = words
        return row

    def settings(self) -> Iterator[Row]:
        """What was found for each learner, and for gbun by the paper's rules."""
        row: Row = {"table": SETTINGS, "data": self.name}
        for who, one in self.tuned.items():
            found = {"note": one.failed} if one.failed else _settings(one.found)
            yield {**row, "learner": LEARNERS[who].title, **found}
        if self.protocol is not None and (best := self.protocol.found):
            row |= {"learner": f"gbun, {PROTOCOL}", "trials": best["points"], "rounds": best["round"]}
            yield {**row, "settings": describe(best["settings"]), "note": best["note"]}


def duels(boards: Sequence[Board]) -> list[Row]:
    """A row for each other learner, and one for the best of the boosters."""
    pairs = {
        learner.title: [(board.ours, board.standing[name]) for board in boards if board.ours and name in board.standing]
        for name, learner in LEARNERS.items()
        if name != "gbun"
    }
    best = [(board.ours, max(board.peers, key=lambda one: one.mean)) for board in boards if board.ours and board.peers]
    rows = []
    for title, both in {**pairs, "the best of the other boosters": best}.items():
        results = [compare(ours, peer) for ours, peer in both]
        counts = {"wins": results.count(1), "ties": results.count(0), "losses": results.count(-1)}
        if both:
            mean = sum(ours.mean - peer.mean for ours, peer in both) / len(both)
            rows.append({"table": DUELS, "against": title, **counts, "mean difference": mean})
    return rows


def goals(boards: Sequence[Board]) -> list[Row]:
    """A booster without a figure within the same seconds and memory is behind. The stricter count, of sets that all
    boosters have a figure of, is a goal of its own: without a booster a set is easier to win.

    Sets on which gbun has no figure, or another was not run or ended with an error, are not held.
    """
    ten = [board for board in boards if board.name in TEN and board.was_run]
    if not ten:
        return []
    late = {board.name: [who for who in board.without if who not in board.untried] for board in ten}
    untried = {board.name: board.untried for board in ten}
    data = [f"{len(ten)} of the ten sets"]
    reasons = {"no figure within time or memory": late, "not counted, as not run or for an error": untried}
    for reason, boosters in reasons.items():
        names = [f"{name} ({', '.join(titles)})" for name, titles in boosters.items() if titles]
        data += [f"{reason}: {', '.join(names)}"] if names else []
    known = [board for board in ten if board.ours and board.peers and not board.untried]
    outright = sum(compare_all(board.ours, board.peers) == 1 for board in known if board.ours)
    all_run = sum(board.complete for board in ten) == len(TEN)  # otherwise the goals are not measured
    what = f"best of the four boosters, or within noise of it (best outright: {outright})"
    rows = [goal("; ".join(data), what, sum(board.held for board in ten) if all_run else None, least=LEAST_SETS)]
    if len(data) > 1:
        whole = [board for board in ten if not board.without]
        strict = f"the {len(whole)} sets on which all four boosters have a figure"
        measured = sum(board.held for board in whole) if all_run else None
        rows.append(goal(strict, "the same where all four have a figure", measured, least=LEAST_SETS))
    return rows


def _score(finding: Finding) -> str:
    """With its rounds: they show where time was too short for a booster."""
    if finding.failed:
        return f"none: {finding.failed if len(finding.failed) < 40 else 'see its settings'}"
    found, booster = finding.found, LEARNERS[finding.settings["learner"]].booster
    rounds = f" ({found['refits'][0]['rounds']} rounds)" if booster else ""
    return f"{found['mean']:.4f} ± {found['deviation']:.4f}{rounds}"


def _settings(found: Mapping[str, Any]) -> Row:
    reasons = dict.fromkeys(one["why"] for one in found["failures"])
    notes = [f"{len(found['failures'])} trial(s) failed: {', '.join(reasons)}"] if reasons else []
    if cut := sum(one["cut"] for one in found["refits"]):
        notes.append(f"{cut} refit(s) cut off by the clock")
    return {
        "trials": found["trials"],
        "validation": found["validation"],
        "macro precision": found["papers"] if found["metric"] == "accuracy" else None,
        "rounds": found["refits"][0]["rounds"],
        "tuning, s": found["tuning"],
        "refits, s": found["refitting"],
        "settings": describe(found["settings"]),
        "note": "; ".join(filter(None, [*notes, found["note"]])),
    }


def describe(settings: dict[str, Any]) -> str:
    """
    >>> describe({"learning_rate": 0.123456, "scale": "raw"})
    'learning_rate 0.123, scale raw'
    """
    words = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items())
    return ", ".join(words) or "defaults"
