"""Back-translation masked language modelling, BTMLM (ERNIE-M)."""
