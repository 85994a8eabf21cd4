"""What records tell afterwards: a job in words, who held it, what control said when."""
