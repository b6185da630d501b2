"""How fast gbun is: beside LightGBM, XGBoost and a plain prototype, and beside what the machine can do at best.

    python -m benchmarks.speed --data FOLDER [--only PART ...] [--quick] [--threads N] [--output FOLDER]

Parts: rounds, kernels, scaling, prediction, target. Whatever is compared takes turns within one run, a unit of work
each, so that a machine that is slower for a minute is slower for all of them.
"""
