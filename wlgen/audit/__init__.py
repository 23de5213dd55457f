"""An audit: the rows of a set beside the results of a run, and each promise for each request.

What other rooms import of it:
audit          hears a run: rows beside results, each promise for each request
model          what an audit found, the values that every report reads
findings       one row beside one result, promise by promise
join           which row each result is of
results        result files, recognised and opened one after another
witnessed      how each figure of a row is known: by a client, by a server, by proof
ceiling        what the counters of the servers leave no other way to have happened
witness_files  the servers' own files: scrapes, request files, logs
explain        tries what could have happened, and names what explains the rows that deviate
as_seen        a run that can be replayed, from rows and results
run_figures    throughput, latencies and concurrency in one window
sending        when requests were sent: beside their planned times, and rank beside rank
windows        the whole run, and AISBench's steady window
"""
