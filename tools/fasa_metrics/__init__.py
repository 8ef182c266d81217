"""Metrics of `fasa eval longbench` and `fasa eval math`, on the packages that the tasks' authors
use. The command runs this package as a program over the predictions that it has kept."""
