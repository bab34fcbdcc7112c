"""`muster adopt`: looks at a cluster that Kueue runs, says what will differ, and takes it over evicting nobody.

`survey` reads the cluster, `differences` judges it, `takeover` does it step by step, and `imports` brings running pods
into queues. What Muster cannot do is told before anything is changed.
"""
