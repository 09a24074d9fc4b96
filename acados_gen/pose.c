/* The reprojection error of a bundle of corners and its nearest minimum, for companion/tracking/pose.py.
 *
 * A pose needs about ten evaluations over about twenty corners. In Python these are a hundred calls on tiny arrays,
 * which take longer than the detection of the markers. Nothing here allocates memory or keeps a state.
 *
 *   camera   5 + 8    fx, fy, cx, cy [px], 1 for a fisheye (else 0), distortion as in companion/core/camera_model.py
 *   points   n x 3    corners in M [m]
 *   pixels   n x 2    detected corners [px]
 *   pose     9 + 3    R_CM by rows, p_CM [m]
 *
 *   weight            of the sizes as the marker file has them: corner noise over relative standard deviation, squared
 *                     [px²]; 0: the sizes are exact
 *
 * Errors are projected minus detected; Jacobians are with respect to δp and to δθ in R exp(δθ).
 *
 * Corners come by markers of four. A marker may be printed, cut or seen (glare, blur) larger than the file says, and its
 * centre is where it is. Its size 1 + s is unknown beside the pose: with h = de/ds, the s that explains its eight errors
 * best is eliminated, e.g. H - Jᵀh hᵀJ / (hᵀh + weight). Otherwise one marker that is 3 % larger than its neighbour tilts
 * the bundle by degrees. A bundle of one marker has only its size to measure the range by: the filter knows that.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MIN_DEPTH 1e-6 /* [m], as in camera_model.py: nearer points have no image */
#define CORNERS 4 /* of a marker */
#define ITERATIONS 25
#define TOLERANCE 1e-6 /* relative change of the cost; convergence is quadratic, so the next step would be far smaller */
#define DAMPING_START 1e-4
#define DAMPING_MAX 1e8

/* Distorted coordinates uv and their Jacobian D (2 x 2) of ideal ones; Brown-Conrady with rational radial part. */
static void distort_pinhole(const double *k, double x, double y, double *uv, double *D) {
    const double k1 = k[0], k2 = k[1], p1 = k[2], p2 = k[3], k3 = k[4], k4 = k[5], k5 = k[6], k6 = k[7];
    const double r2 = x * x + y * y;
    const double a = 1 + r2 * (k1 + r2 * (k2 + r2 * k3)), b = 1 + r2 * (k4 + r2 * (k5 + r2 * k6));
    const double da = k1 + r2 * (2 * k2 + r2 * 3 * k3), db = k4 + r2 * (2 * k5 + r2 * 3 * k6);
    const double s = a / b, ds = (da * b - a * db) / (b * b); /* radial factor and its derivative with respect to r² */
    uv[0] = x * s + 2 * p1 * x * y + p2 * (r2 + 2 * x * x);
    uv[1] = y * s + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y;
    D[0] = s + 2 * x * x * ds + 2 * p1 * y + 6 * p2 * x;
    D[1] = D[2] = 2 * x * y * ds + 2 * p1 * x + 2 * p2 * y;
    D[3] = s + 2 * y * y * ds + 6 * p1 * y + 2 * p2 * x;
}

/* The same for the fisheye model (Kannala & Brandt). */
static void distort_fisheye(const double *k, double x, double y, double *uv, double *D) {
    const double r = fmax(hypot(x, y), 1e-9), angle = atan(r), t2 = angle * angle;
    const double d = angle * (1 + t2 * (k[0] + t2 * (k[1] + t2 * (k[2] + t2 * k[3]))));
    const double dd = 1 + t2 * (3 * k[0] + t2 * (5 * k[1] + t2 * (7 * k[2] + t2 * 9 * k[3])));
    const double s = d / r;
    const double slope = r < 1e-5 ? 0.0 : (dd / (1 + r * r) - s) / (r * r); /* ds/dr over r */
    uv[0] = x * s;
    uv[1] = y * s;
    D[0] = s + x * x * slope;
    D[1] = D[2] = x * y * slope;
    D[3] = s + y * y * slope;
}

/* Error e (2) [px] of one corner and its Jacobian J (2 x 6); NaN when the corner is not in front of the camera. */
static void corner(const double *camera, const double *pose, const double *m, const double *pixel, double *e,
                   double *J) {
    const double *R = pose, *p = pose + 9;
    double c[3], uv[2], D[4];
    for (int i = 0; i < 3; i++) c[i] = R[3 * i] * m[0] + R[3 * i + 1] * m[1] + R[3 * i + 2] * m[2] + p[i];
    const double z = c[2] > MIN_DEPTH ? c[2] : NAN, x = c[0] / z, y = c[1] / z;
    (camera[4] != 0.0 ? distort_fisheye : distort_pinhole)(camera + 5, x, y, uv, D);
    for (int i = 0; i < 2; i++) {
        const double f = camera[i];
        double *row = J + 6 * i, turned[3];
        e[i] = f * uv[i] + camera[2 + i] - pixel[i];
        row[0] = f * D[2 * i] / z;
        row[1] = f * D[2 * i + 1] / z;
        row[2] = -f * (D[2 * i] * x + D[2 * i + 1] * y) / z;
        /* d(R exp(δθ) m)/dδθ = -R [m]x: the row is m x (Rᵀ dᵀ), where d is the row with respect to δp */
        for (int j = 0; j < 3; j++) turned[j] = row[0] * R[j] + row[1] * R[3 + j] + row[2] * R[6 + j];
        row[3] = m[1] * turned[2] - m[2] * turned[1];
        row[4] = m[2] * turned[0] - m[0] * turned[2];
        row[5] = m[0] * turned[1] - m[1] * turned[0];
    }
}

/* All errors (2n) and their Jacobian (2n x 6). */
void pose_residual(const double *camera, int64_t n, const double *points, const double *pixels, const double *pose,
                   double *errors, double *jacobian) {
    for (int64_t i = 0; i < n; i++) {
        corner(camera, pose, points + 3 * i, pixels + 2 * i, errors + 2 * i, jacobian + 12 * i);
    }
}

/* How the two numbers of a corner change with the size of its marker: de/ds = J_p R (corner - centre). */
static void size_slope(const double *pose, const double *m, const double *centre, const double *J, double *h) {
    double outward[3];
    for (int i = 0; i < 3; i++) {
        outward[i] = 0;
        for (int j = 0; j < 3; j++) outward[i] += pose[3 * i + j] * (m[j] - centre[j]);
    }
    for (int i = 0; i < 2; i++) h[i] = J[6 * i] * outward[0] + J[6 * i + 1] * outward[1] + J[6 * i + 2] * outward[2];
}

/* Sum of squared errors; half its Hessian H = JᵀJ (6 x 6, lower triangle) and half its gradient g = Jᵀe, with the sizes
 * of the markers eliminated. */
static double normal_equations(const double *camera, int64_t n, const double *points, const double *pixels,
                               const double *pose, double weight, double *H, double *g) {
    double cost = 0.0, e[2], J[12], h[2];
    memset(H, 0, 36 * sizeof(double));
    memset(g, 0, 6 * sizeof(double));
    for (int64_t first = 0; first < n; first += CORNERS) {
        const int64_t end = first + CORNERS < n ? first + CORNERS : n;
        double centre[3] = {0}, hJ[6] = {0}, hh = weight, he = 0;
        for (int64_t k = first; k < end; k++)
            for (int i = 0; i < 3; i++) centre[i] += points[3 * k + i] / (double)(end - first);
        for (int64_t k = first; k < end; k++) {
            corner(camera, pose, points + 3 * k, pixels + 2 * k, e, J);
            cost += e[0] * e[0] + e[1] * e[1];
            for (int i = 0; i < 6; i++) {
                g[i] += J[i] * e[0] + J[6 + i] * e[1];
                for (int j = 0; j <= i; j++) H[6 * i + j] += J[i] * J[j] + J[6 + i] * J[6 + j];
            }
            size_slope(pose, points + 3 * k, centre, J, h);
            hh += h[0] * h[0] + h[1] * h[1];
            he += h[0] * e[0] + h[1] * e[1];
            for (int i = 0; i < 6; i++) hJ[i] += h[0] * J[i] + h[1] * J[6 + i];
        }
        if (!(weight > 0)) continue;
        cost -= he * he / hh;
        for (int i = 0; i < 6; i++) {
            g[i] -= hJ[i] * he / hh;
            for (int j = 0; j <= i; j++) H[6 * i + j] -= hJ[i] * hJ[j] / hh;
        }
    }
    return cost;
}

/* H = JᵀJ (6 x 6, lower triangle) with the sizes eliminated; returns the sum of squared errors. */
double pose_information(const double *camera, int64_t n, const double *points, const double *pixels, const double *pose,
                        double weight, double *H) {
    double g[6];
    return normal_equations(camera, n, points, pixels, pose, weight, H, g);
}

/* step = -(H + damping diag H)⁻¹ g by Cholesky's method; returns 0 when that matrix is not positive definite. */
static int damped_step(const double *H, const double *g, double damping, double *step) {
    double L[36];
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = H[6 * i + j] * (i == j ? 1 + damping : 1);
            for (int k = 0; k < j; k++) sum -= L[6 * i + k] * L[6 * j + k];
            if (i == j && !(sum > 0)) return 0;
            L[6 * i + j] = i == j ? sqrt(sum) : sum / L[6 * j + j];
        }
    }
    for (int i = 0; i < 6; i++) {
        step[i] = -g[i];
        for (int k = 0; k < i; k++) step[i] -= L[6 * i + k] * step[k];
        step[i] /= L[7 * i];
    }
    for (int i = 5; i >= 0; i--) {
        for (int k = i + 1; k < 6; k++) step[i] -= L[6 * k + i] * step[k];
        step[i] /= L[7 * i];
    }
    return 1;
}

/* moved = (R exp(δθ), p + δp) by Rodrigues' formula. */
static void moved_by(const double *pose, const double *step, double *moved) {
    const double x = step[3], y = step[4], z = step[5];
    const double angle2 = x * x + y * y + z * z, angle = sqrt(angle2);
    const double a = angle < 1e-8 ? 1.0 : sin(angle) / angle;
    const double b = angle < 1e-8 ? 0.5 : (1 - cos(angle)) / angle2;
    const double E[9] = {1 - b * (y * y + z * z), b * x * y - a * z, b * x * z + a * y,
                         b * x * y + a * z, 1 - b * (x * x + z * z), b * y * z - a * x,
                         b * x * z - a * y, b * y * z + a * x, 1 - b * (x * x + y * y)};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            moved[3 * i + j] = pose[3 * i] * E[j] + pose[3 * i + 1] * E[3 + j] + pose[3 * i + 2] * E[6 + j];
        }
        moved[9 + i] = pose[9 + i] + step[i];
    }
}

/* Levenberg-Marquardt: moves the pose to the nearest minimum and returns the sum of squared errors there [px²]; NaN,
 * with the pose as it was, when a corner is not in front of the camera. */
double pose_refine(const double *camera, int64_t n, const double *points, const double *pixels, double *pose,
                   double weight) {
    double H[36], g[6], H_new[36], g_new[6], step[6], trial[12];
    double cost = normal_equations(camera, n, points, pixels, pose, weight, H, g);
    double damping = DAMPING_START;
    if (!isfinite(cost)) return NAN;
    for (int i = 0; i < ITERATIONS && damping <= DAMPING_MAX; i++) {
        if (damped_step(H, g, damping, step)) {
            moved_by(pose, step, trial);
            const double cost_new = normal_equations(camera, n, points, pixels, trial, weight, H_new, g_new);
            if (cost_new <= cost) { /* false for NaN as well: a step through the camera plane */
                const double gain = cost - cost_new;
                memcpy(pose, trial, sizeof trial);
                memcpy(H, H_new, sizeof H);
                memcpy(g, g_new, sizeof g);
                cost = cost_new;
                damping *= 0.1;
                if (gain <= TOLERANCE * cost + 1e-15) break;
                continue;
            }
        }
        damping = fmax(damping * 10, DAMPING_START);
    }
    return cost;
}
