"""Sentences and notations that the command line and the page share: of groups, ACLs, nodes and offsets."""
