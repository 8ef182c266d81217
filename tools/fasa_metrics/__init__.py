"""Metrics of `fasa eval longbench` and `fasa eval math`, computed with the packages that the tasks'
authors use. The command runs this package as a program on its stored predictions."""
