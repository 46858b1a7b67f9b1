"""One file per API family; each opens with its contract. `ottla.broker.serving.apis` names them."""
