"""Three scenarios of split MNIST (van de Ven, Tuytelaars and Tolias 2022)."""
