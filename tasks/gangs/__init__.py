"""Several members of one trial: shards, rendezvous, tensors from peer to peer."""
