"""Runs the tests of a module, except some, and prints the result of each.

    suite.py MODULE [TEST...]
"""
import sys
import unittest

module, *left_out = sys.argv[1:]


def flat(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        elif test.id() not in left_out:
            yield test


loaded = unittest.defaultTestLoader.loadTestsFromName(module)
unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(flat(loaded)))
