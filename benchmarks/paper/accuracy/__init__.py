"""Table 1 of the paper and its figure of convergence.

    python -m benchmarks.paper.accuracy --data FOLDER [--sets letter,a9a] [--learners gbun,lightgbm] [--budget 30]
    python -m benchmarks.paper.accuracy --quick

FOLDER has the ten sets and tabular_small as arrays, or the original files of the LIBSVM collection (`libsvm.py`).

A cell is a learner on a set: an Optuna study of `--budget` seconds on a fifth of the training rows, whose first trial
has the learner's own defaults, then the best settings on all training rows with several seeds, judged on the test
rows; what each of these contributes to the score is kept with it. Everyone has the same seconds, the same
fifth, the same patience and the same rules of the clock (`tuning.py`). A seed is the learner's random state and the
order of rows; where a learner has neither chance nor use for order (a linear model, LightGBM that takes all columns),
seeds give about the same model, and the noise is that of test rows.
"""

from __future__ import annotations

from benchmarks.paper.accuracy.picture import draw
from benchmarks.paper.accuracy.plan import cells, options
from benchmarks.paper.accuracy.tables import tables
from benchmarks.paper.experiment import Experiment

TEXT = """\
The paper tunes GBUN, XGBoost and LightGBM by grid search over model size, shrinkage and L2 penalty with 300 rounds, and
prints the best score on test rows over all rounds and settings. Here each learner, CatBoost and a linear model too, has
the same seconds of an Optuna study on a fifth of the training rows; its first trial has the learner's own defaults. The
best settings are trained on all training rows with several seeds and judged on test rows: AUC for two classes, accuracy
for more, R2 for regression.

A trial may take half of the budget, and as much again for a round that is under way; it counts with its best round, and
that many rounds its settings are trained on all rows. Who has no round by then has no figure. So where a round takes
long, a figure is of the rounds there was time for, not of what the learner would come to: the table has their number,
and "python -m benchmarks.accuracy --wide" has the defaults of each learner with more time. Cells have a thread each,
and as many run side by side as the machine has cores and memory for, which seconds of the curves feel too. XGBoost is
called by xgboost.train with a DMatrix that its trials share, because its estimator takes many times as long to judge
wide rows; LightGBM is told to go row by row on sparse rows, which it finds out in seconds otherwise; its own data sets
and CatBoost's depend on what is tuned, or are made as quickly, and are made anew.

"Within noise" is a paired test: of the difference of two learners on each test row, for AUC as DeLong has it, and of
the deviation over seeds; what another study, another validation fifth or more seconds would change is not in it. A
booster without a figure for want of time or memory counts as behind; the count of sets where all have one is a
goal of its own. Seeds are 0 for the study, 0, 1, 2 for trainings and, of those, the order of rows.

The paper's metric for several classes is macro-averaged precision, called mAP there. One column has the paper's
protocol, chosen on test rows: a constant start, one softmax, no scaling, and as much of its grid as the budget has time
for; one Hessian is shared by all classes. Where the sets differ from the paper's (rcv1 is a sample, epsilon one of
5,000 rows and 100 columns, aloi has other features, news20 other splits), its figures are beside ours for
a look only. XGBoost, LightGBM and CatBoost read sparse rows as they are; the linear model may choose
tf-idf for counts."""

EXPERIMENT = Experiment("accuracy", "Accuracy", TEXT, cells, tables, draw, options, alone=False)
