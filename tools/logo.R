# Draws the hex logo, man/figures/logo.png: the contours of a skewed posterior, and the ellipse that approximates it.
# usage: Rscript tools/logo.R
# It also draws the icons of the site, pkgdown/favicon.
blue <- "#0072B2"
dark <- "#003D5C"
hexagon <- function(r) {
  angle <- pi / 2 + (0:5) * pi / 3
  list(x = r * cos(angle), y = r * sin(angle))
}
draw_logo <- function(file, width, height) {
  dir.create(dirname(file), showWarnings = FALSE, recursive = TRUE)
  png(file, width = width, height = height, bg = "transparent", type = "cairo")
  par(mar = c(0, 0, 0, 0), xaxs = "i", yaxs = "i")
  plot.new()
  plot.window(c(-0.866, 0.866) * 1.01, c(-1, 1) * 1.01, asp = 1)
  polygon(hexagon(1), col = dark, border = NA)
  polygon(hexagon(0.955), col = "white", border = NA)

  # a bent density: normal in a and in b - 1.1 a^2
  x <- seq(-1, 1, length.out = 300)
  y <- seq(-1, 1, length.out = 300)
  turn <- pi / 7
  log_density <- outer(x, y, function(x, y) {
    a <- cos(turn) * x + sin(turn) * (y - 0.12)
    b <- -sin(turn) * x + cos(turn) * (y - 0.12)
    -(a / 0.22)^2 / 2 - ((b - 1.1 * (a^2 - 0.22^2)) / 0.11)^2 / 2
  })
  levels <- c(-3.6, -2.4, -1.4, -0.6)
  for (i in seq_along(levels)) {
    for (line in contourLines(x, y, log_density, levels = levels[i])) {
      polygon(line$x, line$y, col = grDevices::adjustcolor(blue, c(0.12, 0.2, 0.3, 0.45)[i]), border = NA)
    }
  }
  # its ellipse, of the same mean and covariance
  weight <- exp(log_density) / sum(exp(log_density))
  grid <- expand.grid(x = x, y = y)
  moments <- stats::cov.wt(grid, as.vector(weight), method = "ML")
  angle <- seq(0, 2 * pi, length.out = 400)
  circle <- rbind(cos(angle), sin(angle)) * sqrt(-2 * log(0.05))
  ellipse <- moments$center + t(chol(moments$cov)) %*% circle
  lines(ellipse[1, ], ellipse[2, ], col = dark, lwd = 5 * width / 480)
  points(moments$center[1], moments$center[2], pch = 19, cex = 1.6 * width / 480, col = dark)
  text(0, -0.60, "elvi", cex = 6.2 * width / 480, col = dark, font = 2, family = "sans")
  invisible(dev.off())
}

draw_logo("man/figures/logo.png", 480, 556)
for (size in c(16, 32)) draw_logo(sprintf("pkgdown/favicon/favicon-%dx%d.png", size, size), size, size)
for (size in c(60, 76, 120, 152, 180)) draw_logo(sprintf("pkgdown/favicon/apple-touch-icon-%dx%d.png", size, size), size, size)
draw_logo("pkgdown/favicon/apple-touch-icon.png", 180, 180)
