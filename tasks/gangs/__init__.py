"""Gangs, whose members train one trial together: shards, rendezvous, and transfers of states."""
