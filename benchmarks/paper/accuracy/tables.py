"""What the cells have found, as tables: the ten sets, the tabular ones, who beats whom, settings, and the goal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks.paper.accuracy.figures import GRID, SCORES
from benchmarks.paper.accuracy.learners import BOOSTERS, LEARNERS
from benchmarks.paper.accuracy.plan import PROTOCOL
from benchmarks.paper.accuracy.sets import MOST_TABULAR_ROWS, TEN
from benchmarks.paper.accuracy.verdicts import NOISE, Standing, against_all, compare, verdict
from benchmarks.paper.cells import Finding, NotRun
from benchmarks.speed.report import Row, goal

NOISE_IN_WORDS = f"within noise: {NOISE:g} standard errors of the difference, row by row and over seeds"
MAIN = f"accuracy: test rows, mean ± deviation over seeds, and rounds of the first ({NOISE_IN_WORDS})"
TABULAR = f"accuracy: tabular sets, at most {MOST_TABULAR_ROWS:,} rows ({NOISE_IN_WORDS})"
DUELS = f"accuracy: tabular sets on which gbun wins, ties and loses ({NOISE_IN_WORDS})"
SETTINGS = "accuracy: settings found"
FACTS = {"train rows": "rows", "test rows": "test rows", "features": "features"}
LEAST_SETS = 7
TITLES = {"xgboost": "XGB", "lightgbm": "LGB", "gbun": "GBUN"}  # as the paper has them


def tables(findings: Sequence[Finding]) -> list[Row]:
    names = dict.fromkeys(finding.settings["data"] for finding in findings)
    boards = [Board(name, [f for f in findings if f.settings["data"] == name]) for name in names]
    main, tabular = ([b for b in boards if b.tabular is which] for which in (False, True))
    return [
        *(board.row(MAIN) | board.beside() for board in main),
        *(board.row(TABULAR) for board in tabular),
        *duels(tabular),
        *(row for board in boards for row in board.settings()),
        *goals(main),
    ]


class Board:
    """What is known of one set."""

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.name = name
        self.tabular, self.budget = bool(findings[0].settings["tabular"]), findings[0].settings["budget"]
        self.tuned = {f.settings["learner"]: f for f in findings if "learner" in f.settings}
        self.protocol = next((f for f in findings if f.name.endswith(PROTOCOL)), None)
        self.standing = {
            name: Standing.of(LEARNERS[name].title, f.found) for name, f in self.tuned.items() if not f.failed
        }

    @property
    def run(self) -> bool:
        return not all(isinstance(finding, NotRun) for finding in self.tuned.values())

    @property
    def complete(self) -> bool:
        """Whether all boosters have been run, whatever came of it."""
        return all(name in self.tuned and not isinstance(self.tuned[name], NotRun) for name in BOOSTERS)

    @property
    def ours(self) -> Standing | None:
        return self.standing.get("gbun")

    @property
    def without(self) -> list[str]:
        """Boosters that have no figure."""
        return [LEARNERS[name].title for name in BOOSTERS if name not in self.standing]

    @property
    def untried(self) -> list[str]:
        """Boosters that have no figure for want of neither time nor memory: they were not run, or ended with an error
        and may have been asked the wrong way."""
        tried = {name: f for name, f in self.tuned.items() if not isinstance(f, NotRun)}
        fair = [name for name, f in tried.items() if not re.search("(Error|Exception):|died with exit code", f.failed)]
        return [LEARNERS[name].title for name in BOOSTERS if name not in fair]

    @property
    def others(self) -> list[Standing]:
        return [self.standing[name] for name in BOOSTERS if name != "gbun" and name in self.standing]

    def row(self, table: str) -> Row:
        told = next((f.found for f in self.tuned.values() if f.found), {})
        scores = {LEARNERS[name].title: _score(f) for name, f in self.tuned.items()}
        words = verdict(self.ours, self.others, self.standing.get("linear"))
        if without := self.without:
            words += f"; without {', '.join(without)}"
        row: Row = {"table": table, "data": self.name, "verdict": words, "metric": told.get("metric"), **scores}
        row |= {name: told.get(known) for name, known in FACTS.items()}
        return row | {"budget s": self.budget}

    def beside(self) -> Row:
        """What the paper prints, and what gbun has by the same rules."""
        printed = {f"paper's {TITLES[name]}": value for name, value in SCORES.get(self.name, {}).items()}
        ours = self.tuned.get("gbun")
        found: Row = {"gbun by the paper's metric": ours.found["papers"] if ours and ours.found else None, **printed}
        if self.protocol is not None:
            told = self.protocol.found
            words = self.protocol.failed or f"{told['best']:.4f} ({told['points']} of {GRID} points)"
            found["paper's protocol, chosen on test rows"] = words
        return found

    def settings(self) -> list[Row]:
        rows = [_settings(self.name, LEARNERS[name].title, finding) for name, finding in self.tuned.items()]
        if self.protocol is not None and self.protocol.found:
            found = self.protocol.found
            rows.append(
                {
                    "table": SETTINGS,
                    "data": self.name,
                    "learner": f"gbun, {PROTOCOL}",
                    "trials": found["points"],
                    "rounds": found["round"],
                    "settings": _words(found["settings"]),
                    "note": found["note"],
                }
            )
        return rows


def duels(boards: Sequence[Board]) -> list[Row]:
    """A row for each other learner, and one for the best of the boosters."""
    rows = []
    for name, learner in LEARNERS.items():
        pairs = [(b.ours, b.standing[name]) for b in boards if b.ours and name in b.standing]
        if name != "gbun" and pairs:
            rows.append(_duel(learner.title, pairs))
    best = [(b.ours, max(b.others, key=lambda one: one.mean)) for b in boards if b.ours and b.others]
    return [*rows, *([_duel("the best of the other boosters", best)] if best else [])]


def _duel(title: str, pairs: list[tuple[Standing, Standing]]) -> Row:
    results = [compare(ours, other) for ours, other in pairs]
    return {
        "table": DUELS,
        "against": title,
        "wins": results.count(1),
        "ties": results.count(0),
        "losses": results.count(-1),
        "mean difference": sum(ours.mean - other.mean for ours, other in pairs) / len(pairs),
    }


def goals(boards: Sequence[Board]) -> list[Row]:
    """Who has no figure within the same seconds and memory is behind. The stricter count, of sets that all have one of,
    is a goal of its own: without a booster a set is easier to win.

    Sets on which gbun has none, or another was not run or ended with an error, are not held.
    """
    ten = [board for board in boards if board.name in TEN and board.run]
    if not ten:
        return []
    held = {board.name: _held(board) for board in ten}
    whole = [board.name for board in ten if not board.without]
    told = [f"{len(ten)} of the ten sets"]
    if late := _listed({board.name: [who for who in board.without if who not in board.untried] for board in ten}):
        told.append(f"no figure within time or memory: {late}")
    if untried := _listed({board.name: board.untried for board in ten}):
        told.append(f"not counted, as not run or for an error: {untried}")
    known = [board for board in ten if board.ours and board.others and not board.untried]
    outright = sum(against_all(board.ours, board.others) == 1 for board in known if board.ours)
    what = f"best of the four boosters, or within noise of it (best outright: {outright})"
    unknown = len(TEN) - sum(board.complete for board in ten)
    rows = [goal("; ".join(told), what, _count(held, list(held), unknown) if known else None, least=LEAST_SETS)]
    if late or untried:
        strict = f"the {len(whole)} sets on which all four boosters have a figure"
        what = "the same where all four have a figure"
        rows.append(goal(strict, what, _count(held, whole, unknown) if whole else None, least=LEAST_SETS))
    return rows


def _listed(boosters: dict[str, list[str]]) -> str:
    """
    >>> _listed({"aloi": ["CatBoost"], "a9a": []})
    'aloi (CatBoost)'
    """
    return ", ".join(f"{name} ({', '.join(who)})" for name, who in boosters.items() if who)


def _held(board: Board) -> bool:
    return bool(board.ours and board.others and not board.untried and against_all(board.ours, board.others) >= 0)


def _count(held: dict[str, bool], names: Sequence[str], unknown: int) -> int | None:
    """Nothing, where sets on which not all have been run might decide."""
    count = sum(held[name] for name in names)
    return None if count < LEAST_SETS <= count + unknown else count


def _score(finding: Finding) -> str:
    """With its rounds: a booster that time was too short for is seen by them."""
    if finding.failed:
        return f"none: {finding.failed if len(finding.failed) < 40 else 'see its settings'}"
    found, booster = finding.found, LEARNERS[finding.settings["learner"]].booster
    rounds = f" ({found['refits'][0]['rounds']} rounds)" if booster else ""
    return f"{found['mean']:.4f} ± {found['deviation']:.4f}{rounds}"


def _settings(data: str, title: str, finding: Finding) -> Row:
    row: Row = {"table": SETTINGS, "data": data, "learner": title}
    if finding.failed:
        return {**row, "note": finding.failed}
    found = finding.found
    reasons = dict.fromkeys(one["why"] for one in found["failures"])
    notes = [f"{len(found['failures'])} trial(s) failed: {', '.join(reasons)}"] if reasons else []
    if cut := sum(one["cut"] for one in found["refits"]):
        notes.append(f"{cut} refit(s) cut off by the clock")
    if found["note"]:
        notes.append(found["note"])
    return {
        **row,
        "trials": found["trials"],
        "validation": found["validation"],
        "macro precision": found["papers"] if found["metric"] == "accuracy" else None,
        "rounds": found["refits"][0]["rounds"],
        "tuning, s": found["tuning"],
        "refits, s": found["refitting"],
        "settings": _words(found["settings"]),
        "note": "; ".join(notes),
    }


def _words(settings: dict[str, Any]) -> str:
    """
    >>> _words({"learning_rate": 0.123456, "scale": "raw"})
    'learning_rate 0.123, scale raw'
    """
    told = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items())
    return ", ".join(told) or "defaults"
