"""Texts that the command line and the page share: about groups, their members, ACLs, nodes of the tree, and offsets."""
