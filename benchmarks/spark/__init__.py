"""gbun on Spark beside xgboost.spark: seconds a round, what a training costs besides, memory of an executor.

    python -m benchmarks.spark [--data FOLDER] [--workers 2] [--rounds 10,40] [--peer-rounds 2,8] [--repeats 5]
                            [--parts cost,memory,wide] [--quick] [--output FOLDER]

A standalone cluster (a master, and workers of one core each) runs on loopback for the time of the benchmark; learners
get the same rows from the same Parquet file of sparse vectors, on as many workers. K is 64, trees have six levels.

- **book_crossing** (without --data: generated rows of the shape of KDD12.sub): in one session, learners take turns and
  fit with few and with many rounds; the first turn of each is not counted. The difference of the two fits of a turn
  gives the seconds of a round. "Besides" is the rest of a fit: the stage, rows through Arrow, the start of the workers,
  the preparation of the learner, and the linear start if there is one. The table has the median over turns, the least
  and the most, and the ratio of xgboost.spark to gbun in the same turn.
- **memory**: the most that an executor's processes, Java and Python, held at a time (PSS: shared pages count in parts),
  each fit with executors of its own; with it the AUC on test rows.
- **wide**: rows of 54,686,452 dimensions, as KDD12 has them, in the same way.
"""
