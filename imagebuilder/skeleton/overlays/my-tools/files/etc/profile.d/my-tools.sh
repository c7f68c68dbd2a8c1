# For login shells on every node.
export LESS=-R
