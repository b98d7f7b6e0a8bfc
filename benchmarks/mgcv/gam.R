# REML and GCV of mgcv::gam for a design and penalties given as matrices. Usage: Rscript gam.R FOLDER
#
# FOLDER holds doubles, by columns: size (n, P, count of penalties), X [n, P], y [n], w [n], S1, S2, .. [P, P].
# Prints one line "name value.." for each figure.
suppressMessages(library(mgcv))

folder <- commandArgs(trailingOnly = TRUE)[1]
doubles <- function(name) {
  path <- file.path(folder, name)
  readBin(path, "double", file.size(path) / 8)
}
size <- doubles("size")
X <- matrix(doubles("X"), size[1], size[2])
y <- doubles("y")
w <- doubles("w")
S <- lapply(seq_len(size[3]), function(j) matrix(doubles(paste0("S", j)), size[2], size[2]))

tell <- function(name, values) cat(name, sprintf("%.17g", values), "\n")
control <- gam.control(epsilon = 1e-13, maxit = 500, newton = list(conv.tol = 1e-11, maxNstep = 5, maxSstep = 2, maxHalf = 60))
fit <- function(method, ...) {
  gam(y ~ X - 1, weights = w, paraPen = list(X = c(S, ...)), method = method, control = control)
}
figures <- function(name, method) {
  took <- system.time(m <- fit(method))
  tell(paste0(name, ".seconds"), took[["elapsed"]])
  tell(paste0(name, ".lambda"), m$sp)
  tell(paste0(name, ".edf"), sum(m$edf))
  tell(paste0(name, ".sigma"), sqrt(m$sig2))
  tell(paste0(name, ".score"), m$gcv.ubre)
  invisible(m)
}
reml <- figures("reml", "REML")
figures("gcv", "GCV.Cp")

# The same strengths given, not chosen: equal figures show that they multiply S as it is here.
given <- fit("REML", list(sp = reml$sp))
tell("given.edf", sum(given$edf))
tell("given.score", given$gcv.ubre)
cat("version", as.character(packageVersion("mgcv")), "\n")
