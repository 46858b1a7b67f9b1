"""One file per API family; each opens with its contract. `ottla.broker.apis` names them."""
