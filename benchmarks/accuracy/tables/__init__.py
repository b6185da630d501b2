"""Tables: gbun beside LightGBM, XGBoost, CatBoost, scikit-learn's HGB and a linear model.

    python -m benchmarks.accuracy.tables --data DIR [--rows 10000] [--splits 5] [--only adult,letter] [--jobs 2]
    python -m benchmarks.accuracy.tables --data DIR --tuned 30
    python -m benchmarks.accuracy.tables --data DIR --ablations
    python -m benchmarks.accuracy.tables --folder FILES [--data DIR] ...

The sets are the 28 of tabular_small, letter and usps of the folder --data, and every csv, npz or parquet file of
--folder; `sets.py` says how files are read. A set has at most --rows rows, 70 % of them to train, divided anew in each
split. Part of the training rows is held out, the same rows for every learner.

As they come: all learners have their defaults. Boosters have up to 1000 rounds and stop early on the held-out tenth
(patience 50; HGB keeps the rounds of its patience, the others go back to the best). "gbun" is `GBUNClassifier()` or
`GBUNRegressor()`: it gets all training rows and finds learner and rounds itself. "gbun (given rows)" is the same
library with the rounds, patience and held-out rows of the others.

--tuned SECONDS: an Optuna study of each booster with so many seconds. The first trial has the tuned defaults of
`tuning.py`. A trial stops early on the held-out fifth and is judged by it; the test rows see the best model only.

--ablations: gbun with one switch changed, as a log ratio to LightGBM's loss.

The loss is log loss, or RMSE. On a set a learner is beaten where the mean difference of losses over splits is more than
two standard errors. Over sets there are mean ranks, Wilcoxon's signed-rank test against gbun, and the critical
difference of Nemenyi. Seconds are those of the processor, with one thread. Imports and compiled code are in nobody's
seconds: each learner fits a few generated rows first.

What is finished is in the JSON and not run again; --again forgets learners, --learners measures some of them only.
Optuna: pip install optuna.
"""
