"""The controller's decisions, as pure functions: an image of the cluster in, operations on the metadata tree out.

All inputs but the state of `broker.controller.controller_epoch` (brokers that shut down, offline replicas) are in the
tree or the configuration, so a new controller finishes what a dead one left half done.
"""
