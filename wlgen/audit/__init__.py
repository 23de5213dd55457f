"""An audit: it compares the rows of a set with the results of a run, promise by promise, for each request.

What other rooms import of it:
audit          compares rows with results, and returns all that it found
model          what an audit found, the values that every report reads
findings       one row compared with one result, promise by promise
join           to which row each result belongs
results        result files, recognised and opened one after another
witnessed      how each figure of a row is known: by a client, by a server, by proof
moved          how far the counters of servers moved between two scrapes
ceiling        what the sums of the servers' counters prove of each request
witness_files  the servers' own files: scrapes, request files, logs
explain        tries what could have happened, and names what explains the rows that deviate
as_seen        a run that can be replayed, from rows and results
run_figures    throughput, latencies and concurrency in one window
sending        when requests were sent, against their planned times and against other ranks
windows        the whole run, and AISBench's steady window
"""
