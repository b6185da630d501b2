"""gbun beside trees and linear models on eight wide sets.

    python -m benchmarks.accuracy --wide --data DIR [--sets a,b] [--learners a,b] [--part defaults|tuned|target|all]

Parts
  defaults  Every learner as its maker ships it, rows as they are in the file. Vowpal Wabbit needs some options:
            logistic loss, one against all, three passes over shuffled rows. Logistic regression gets 300 steps.
            `logistic_tfidf` is the same with tf-idf before it, for texts.
  tuned     The same seconds for each learner: candidates in a fixed order (candidates.py), judged on a fifth of the
            training rows. Boosters stop after 20 rounds without improvement, or with the best round so far when time
            is up; others are cut off. The best is trained on all training rows.
  target    Seconds from the beginning of fit until LightGBM's best validation score.

Posts of 20newsgroups_raw are lists of words, without the lines of the header that name the group. gbun gets them as
they are; the others need columns and get counts in 2^18 hashed ones.

Each cell of a table is a process of its own with a limit on time and memory. Finished cells are kept in wide.json and
not run again while options and package versions are the same, unless --fresh is given. So a run can be stopped.
"""
