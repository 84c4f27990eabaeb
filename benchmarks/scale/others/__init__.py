"""The same work in other programs: each module is run by the interpreter of an environment that has one."""
