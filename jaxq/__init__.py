from .models.supermarket import Supermarket as Supermarket
