"""Export: a set's rows written as the files that one benchmark client reads.

What other rooms import of it:
export  writes a set's rows as one client's files
folder  the marker that tells an export from other folders
"""
