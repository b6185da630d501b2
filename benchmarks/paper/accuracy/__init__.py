"""Table 1 of the paper and its figure of convergence.

    python -m benchmarks.paper.accuracy --data FOLDER [--sets letter,a9a] [--learners gbun,lightgbm] [--budget 30]
    python -m benchmarks.paper.accuracy --quick

FOLDER has the ten sets and tabular_small as arrays, or the original files of the LIBSVM collection (`sets.py`). A cell
is a learner on a set: an Optuna study (`tuning.py`), and its best settings judged on test rows (`judging.py`). What
each test row contributes to the score stays in results/paper; the report has the outcome of the paired tests. A seed is
the learner's random state and the order of rows; where a learner uses neither (a linear model, LightGBM that takes all
columns), seeds give about the same model, and noise is that of test rows.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.accuracy.sets import SPLIT_SEED, VALIDATION_SEED
from benchmarks.cells import Cell, Finding
from benchmarks.paper.accuracy.sets import PaperSet, plan_sets
from benchmarks.paper.accuracy.spaces import LEARNERS, fixed_settings, space_of
from benchmarks.paper.accuracy.tables import PROTOCOL, summarise, tables
from benchmarks.paper.accuracy.tuning import GRID_SEED, RULES, STUDY_SEED, Tuning, follow_paper, tune
from benchmarks.paper.experiment import Experiment, Picture, Plan, draw_panels
from benchmarks.report import COLOURS, names_of, number

TEXT = """\
The paper tunes GBUN, XGBoost and LightGBM by grid search over model size, shrinkage and L2 penalty with 300 rounds. It
prints the best score on test rows over all rounds and settings. Here every learner, also CatBoost and a linear model,
gets an Optuna study of the same seconds, judged on a fifth of the training rows; the first trial has the learner's
defaults. The best settings are trained on all training rows with several seeds and judged on test rows: AUC for two
classes, accuracy for more, R2 for regression.

A trial may take half of the budget, and as much again for its last round. Its best round counts, and its settings are
trained on all rows for that number of rounds. A learner without a round by then has no figure. So where a round takes
long, a figure is that of the rounds there was time for, not of what the learner could reach: the table has their
number, and "python -m benchmarks.accuracy --wide" measures the defaults of each learner with more time. Cells have a
thread each, and as many run side by side as the machine has cores and memory for, which affects the seconds of the
curves. XGBoost is called by xgboost.train with a DMatrix that its trials share, because its estimator takes many times
as long to judge wide rows. LightGBM gets force_row_wise on sparse rows, which would otherwise take it seconds to find
out. The data sets of LightGBM and CatBoost depend on what is tuned, or are made quickly, and are made for each trial.

"Within noise" is a paired test: of the difference of two learners on each test row, for AUC by the method of DeLong,
and of the deviation over seeds. It does not cover what another study, another validation set or more time would change.
A booster without a figure for want of time or memory counts as behind; the count of sets where all have one is a goal
of its own. Seeds are 0 for the study and 0, 1, 2 for the trainings and their order of rows.

The paper's metric for several classes is macro-averaged precision, called mAP there. One column has the paper's
protocol, chosen on test rows: a constant start, one softmax, no scaling, and as much of its grid as the budget has time
for; one Hessian is shared by all classes. Some sets differ from the paper's: rcv1 is a sample, epsilon has 5,000 rows
and 100 columns, aloi has other features, news20 other splits. There the paper's figures are only a rough comparison.
XGBoost, LightGBM and CatBoost read sparse rows as they are; the linear model may choose tf-idf for counts."""

CAPTION = (
    "Convergence with the settings that were found: the score on test rows after each round, against rounds and "
    "against the seconds of one thread since training began, with other cells running beside. gbun begins with its "
    "start, round 0. Boosters of the paper, on its sets and on book_crossing."
)
BUDGET, TABULAR_BUDGET, QUICK_BUDGET = 30.0, 5.0, 0.5  # seconds of tuning for each learner
SEEDS, QUICK_SEEDS = 3, 2  # trainings that are judged on test rows
QUICK_LEARNERS = {"clicks": ["gbun"], "friedman": ["gbun", "lightgbm"]}  # all of them on other sets
CURVE_LEARNERS = ("gbun", "xgboost", "lightgbm")
CURVE_SETS = (
    *("letter", "news20_binary", "news20_multi", "rcv1_binary", "aloi", "epsilon", "book_crossing"),
    "classes",
)


def add_options(parser: ArgumentParser) -> None:
    sets = "some of the sets of accuracy, such as letter,a9a; all that the folder has by default"
    parser.add_argument("--sets", type=lambda text: text.split(","), help=sets)
    parser.add_argument("--learners", type=names_of(LEARNERS), help=f"some of {','.join(LEARNERS)}, for accuracy")
    budget = f"seconds of tuning for each learner, {BUDGET:g} by default; tabular sets have {TABULAR_BUDGET:g}"
    parser.add_argument("--budget", type=number(float, 0.1), help=budget)


def cells(plan: Plan) -> list[Cell]:
    """Each learner tuned on each set, and gbun by the paper's protocol on each of the ten."""
    given, found = plan.given, []
    budget, tabular = given.budget or plan.pick(BUDGET, QUICK_BUDGET), plan.pick(TABULAR_BUDGET, QUICK_BUDGET)
    for one in plan_sets(plan, given.sets):
        few = QUICK_LEARNERS.get(one.name) if plan.quick and not given.learners else None
        learners = few or given.learners or LEARNERS
        cell = partial(_cell, plan, one, tabular if one.tabular else budget * one.budgets)
        found += [cell(learner, plan.pick(SEEDS, QUICK_SEEDS)) for learner in learners]
        if not one.tabular and not few and "gbun" in learners:
            found.append(cell(None, 1))
    return found


def _cell(plan: Plan, one: PaperSet, budget: float, learner: str | None, n_seeds: int) -> Cell:
    """A learner tuned on a set; without its name gbun by the paper's protocol."""
    curve = one.name in CURVE_SETS and learner in CURVE_LEARNERS
    contestant, threads = LEARNERS[learner or "gbun"], plan.threads // plan.jobs
    settings: dict[str, Any] = {"data": one.name, "tabular": one.tabular, "source": one.source, "bytes": one.size}
    settings |= {"budget": budget, "threads": threads, "jobs": plan.jobs, **RULES}
    if learner is None:
        run = partial(follow_paper, one.name, plan.data, budget, threads)
        seeds: dict[str, Any] = {"split": SPLIT_SEED, "order of the grid": GRID_SEED, "trainings": [0]}
    else:
        spaces = {kind: space_of(learner, kind == "sparse", kind == "sparse") for kind in ("dense", "sparse")}
        settings |= {"learner": learner, "seeds": n_seeds, "curve": curve, "spaces": spaces}
        if fixed := fixed_settings(learner, one.sparse):
            settings["fixed"] = fixed
        run = partial(tune, Tuning(one.name, learner, plan.data, budget, n_seeds, threads, curve))
        # Trials have the first of the trainings' seeds; a seed of a training is also that of its order of rows.
        seeds = {"split": SPLIT_SEED, "validation": VALIDATION_SEED, "study": STUDY_SEED}
        seeds["trainings"] = list(range(n_seeds))
    name, packages = f"{one.name} / {learner or PROTOCOL}", (*contestant.packages, "optuna")
    return Cell(name, settings, run, packages, (contestant.module, "optuna"), seeds, one.missing)


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    """Curves of convergence: the test score against rounds and against seconds, two panels for each set."""
    curved: dict[str, list[Finding]] = {}
    for finding in findings:
        if "curve" in finding.found:
            curved.setdefault(finding.settings["data"], []).append(finding)
    panels = [partial(_panel, few, against) for few in curved.values() for against in ("rounds", "seconds")]
    return draw_panels(panels, folder / "accuracy_convergence.png", CAPTION, 2.6)


def _panel(findings: Sequence[Finding], against: str, ax: Any) -> None:
    for finding in findings:
        title, curve = LEARNERS[finding.settings["learner"]].title, finding.found["curve"]
        ax.plot(curve[against], curve["scores"], color=COLOURS[title], label=title)
    if against == "seconds":
        ax.set_xscale("log")
    # What is far below the best is of no interest, and would hide what is.
    scores = [finding.found["curve"]["scores"] for finding in findings]
    best = max(map(max, scores))
    ax.set_ylim(max(min(map(min, scores)), best - 0.25), best + 0.01)
    ax.set_xlabel(against)
    ax.set_title(f"{findings[0].settings['data']}: test {findings[0].found['metric']}")


EXPERIMENT = Experiment(
    "accuracy", "Accuracy", TEXT, cells, tables, draw, add_options, alone=False, summarise=summarise
)
