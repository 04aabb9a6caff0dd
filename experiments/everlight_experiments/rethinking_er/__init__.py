"""Buzzega et al. 2020: experience replay with tricks on split Fashion-MNIST."""
