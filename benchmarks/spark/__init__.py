"""gbun on Spark beside xgboost.spark: seconds a round, what a training costs besides, memory of an executor.

    python -m benchmarks.spark [--data FOLDER] [--workers 2] [--rounds 10,40] [--repeats 2] [--quick] [--output FOLDER]

A standalone cluster (a master, and workers of one core each) runs on loopback for the time of the benchmark; both
learners get the same rows from the same Parquet file of sparse vectors, on as many workers. A driver of its own fits
each model, so that one that fails or takes too long leaves nothing behind.

- **book_crossing** (without --data: generated rows of the shape of KDD12.sub): the seconds of a fit at two numbers of
  rounds, taking turns. Their difference is that of the rounds; what is left at no round at all is the way from the
  driver and back: the stage, rows through Arrow, the workers' meeting, the learner's own preparations.
- **wide**: rows of 54,686,452 dimensions, as KDD12 has them. Memory is the most that an executor's processes, Java and
  Python, held at a time.
"""
