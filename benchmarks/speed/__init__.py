"""How fast gbun is: beside LightGBM, XGBoost and a plain prototype, and beside what the machine can do at best.

    python -m benchmarks.speed --data FOLDER [--only PART ...] [--quick] [--threads N] [--output FOLDER]
    python -m benchmarks.speed --device torch:cpu [--data FOLDER] [--quick] [--threads N] [--output FOLDER]

Parts: rounds, kernels, scaling, prediction; and devices, which is run for the device that --device names. Whatever is
compared takes turns within one run, a unit of work each, so that a machine that is slower for a minute is slower for
all of them. Seconds until a score is reached are measured by the part `target` of
`python -m benchmarks.accuracy --wide`.
"""
