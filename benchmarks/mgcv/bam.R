# mgcv::bam on a tensor product of P-splines. Usage: Rscript bam.R FOLDER THREADS K_LAT K_LON K_TIME
#
# FOLDER holds doubles: lat, lon, time, sst. Only the call of bam is timed; the values are in memory before it.
suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
threads <- as.integer(arguments[2])
k <- as.integer(arguments[3:5])
doubles <- function(name) {
  path <- file.path(arguments[1], name)
  readBin(path, "double", file.size(path) / 8)
}
d <- data.frame(lat = doubles("lat"), lon = doubles("lon"), time = doubles("time"), sst = doubles("sst"))
model <- sst ~ te(lat, lon, time, k = k, bs = "ps")

took <- system.time(
  m <- bam(model, data = d, method = "fREML", discrete = TRUE, nthreads = threads)
)
tell <- function(name, values) cat(name, sprintf("%.10g", values), "\n")
tell("wall", took[["elapsed"]])
tell("cpu", sum(took[c("user.self", "sys.self", "user.child", "sys.child")], na.rm = TRUE))
tell("sp", m$sp)
tell("edf", sum(m$edf))
tell("sigma", sqrt(m$sig2))
tell("score", m$gcv.ubre)
tell("coefficients", length(coef(m)))
tell("rmse", sqrt(mean(residuals(m)^2)))
cat("blas", extSoftVersion()[["BLAS"]], "\n")
cat("version", as.character(packageVersion("mgcv")), "\n")
