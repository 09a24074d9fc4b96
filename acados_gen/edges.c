/* Sub-pixel corners of black squares on white, for companion/tracking/edges.py, which says how they are found.
 *
 * An image has about twenty corners with two half edges of twelve normals each. In Python these were a hundred calls on
 * arrays, a fifth of the time of a flight in lockstep with images. Nothing here allocates memory or keeps a state.
 *
 * Pixel convention: the centre of the top left pixel of the image is (0, 0).
 */

#include <complex.h>
#include <math.h>
#include <stdint.h>

#define CORNERS 4
#define REACH_PX 40.0 /* longest part of an edge used for one corner: distortion bends it by a few hundredths of a pixel */
#define NORMALS 12 /* per half edge */
#define END_GAP 0.08 /* part of the edge left out at each end, where blur rounds the corner */
#define END_GAP_MAX_PX 3.0
#define SEARCH_MIN_PX 1.0 /* search to both sides of the edge */
#define SEARCH_MAX_PX 4.0
#define SEARCH_OF_SIDE 0.09 /* of the square across the edge: less than the black border of every family (0.1 to 0.17) */
#define STEPS 8 /* to each side within the search */
#define SLOPE_STEPS 2 /* to each side for the slope of the brightness */
#define PLACES (2 * STEPS + 1)
#define SAMPLES (PLACES + 2 * SLOPE_STEPS)
#define PASSES 3 /* later ones are centred on the edge found before; this removes the bias of a window that is cut off */
#define FITS 2 /* of a line; the second one without outliers */
#define OUTLIER 3.0 /* times the median residual */
#define RESIDUAL_MIN_PX 0.05 /* of that median */
#define MIN_CONTRAST 6.0 /* grey levels over 4 steps; less is noise, not an edge */
#define MAX_SHIFT_OF_SIDE 0.15 /* a corner that moves farther has found another edge: the given corner is kept */
#define MAX_SHIFT_LEAST_PX 2.0
#define MAX_SHIFT_PX 6.0
#define MIN_CROSSING 0.1 /* sine of the angle between the edges of a corner; flatter ones cross anywhere */

typedef double complex point; /* of the plane: x + iy */

typedef struct {
    const uint8_t *pixels;
    int64_t rows, columns, stride;
} image_t;

typedef struct {
    point at, along; /* along: of length 1 */
    int seen;
} line_t;

static double clip(double value, double low, double high) { return fmin(fmax(value, low), high); }

/* A coordinate inside the image; NaN becomes 0. */
static float inside(float value, int64_t count) { return value > 0 ? (value < count - 1 ? value : count - 1) : 0; }

/* Bilinear brightness, rounded to a grey level; outside the image that of its nearest pixel. */
static int brightness(const image_t *image, point p) {
    const float x = inside((float)creal(p), image->columns), y = inside((float)cimag(p), image->rows);
    const int left = (int)x, top = (int)y;
    const float fx = x - left, fy = y - top;
    const int right = left + (left + 1 < image->columns);
    const uint8_t *upper = image->pixels + top * image->stride;
    const uint8_t *lower = top + 1 < image->rows ? upper + image->stride : upper;
    const float above = upper[left] + fx * (upper[right] - upper[left]);
    const float below = lower[left] + fx * (lower[right] - lower[left]);
    return (int)(above + fy * (below - above) + 0.5f);
}

/* Place of the edge on one normal, in strides from `base`, and its strength; 0: there is none. */
static double edge_on_normal(const image_t *image, point base, point stride, int prefer_black, double *strength) {
    int profile[SAMPLES], white = 0, black = 255, steepest = 0;
    for (int i = 0; i < SAMPLES; i++) {
        profile[i] = brightness(image, base + (i - STEPS - SLOPE_STEPS) * stride);
        white = profile[i] > white ? profile[i] : white;
        black = profile[i] < black ? profile[i] : black;
    }
    const double contrast = fmax(white - black, 1.0);
    double total = 0.0, moment = 0.0;
    for (int i = 0; i < PLACES; i++) {
        const int rise = profile[i + 2 * SLOPE_STEPS] - profile[i];
        if (rise <= 0) continue;
        double weight = (double)rise * rise;
        if (prefer_black) {
            /* A rise from black is the marker's edge; a rise from a brighter level belongs to the background.
             * The last pass does without this weight, because it moves a blurred edge inwards. */
            const double darkness = (white - profile[i]) / contrast;
            weight *= darkness * darkness;
        }
        steepest = rise > steepest ? rise : steepest;
        total += weight;
        moment += weight * (i - STEPS);
    }
    *strength = steepest > MIN_CONTRAST ? sqrt(total) : 0.0;
    return moment / fmax(total, 1e-9);
}

static double median(const double *values) {
    double sorted[NORMALS];
    for (int i = 0; i < NORMALS; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > values[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = values[i];
    }
    return 0.5 * (sorted[(NORMALS - 1) / 2] + sorted[NORMALS / 2]);
}

/* Weighted orthogonal line fit. The direction's angle is half that of Σ w (z - z̄)², the principal axis of the scatter. */
static line_t fit_line(const point *edge, const double *strength) {
    line_t line = {0.0, 1.0, 0};
    double weight[NORMALS], residual[NORMALS];
    for (int j = 0; j < NORMALS; j++) weight[j] = strength[j];
    for (int fit = 0; fit < FITS; fit++) {
        double total = 0.0;
        point sum = 0.0, scatter = 0.0;
        for (int j = 0; j < NORMALS; j++) {
            total += weight[j];
            sum += weight[j] * edge[j];
        }
        line.at = sum / fmax(total, 1e-9);
        for (int j = 0; j < NORMALS; j++) scatter += weight[j] * ((edge[j] - line.at) * (edge[j] - line.at));
        line.along = cexp(0.5 * I * carg(scatter));
        for (int j = 0; j < NORMALS; j++) residual[j] = fabs(cimag((edge[j] - line.at) * conj(line.along)));
        const double limit = OUTLIER * fmax(median(residual), RESIDUAL_MIN_PX);
        int used = 0;
        for (int j = 0; j < NORMALS; j++) {
            weight[j] = residual[j] < limit ? strength[j] : 0.0;
            used += weight[j] > 0.0;
        }
        line.seen = used >= NORMALS / 2;
    }
    return line;
}

/* The line through the edge from a corner along `side`; normal: outwards, of length 1; across_px: length of the other edge
 * at the corner, which is the size of the square across this one. */
static line_t half_edge(const image_t *image, point corner, point along, point normal, double length_px, double across_px,
                        double extra_px, int prefer_black) {
    const double start = clip(END_GAP * length_px, fmin(1.0, 0.25 * length_px), END_GAP_MAX_PX);
    const double stop = fmin(length_px - start, start + REACH_PX);
    const double step = (clip(SEARCH_OF_SIDE * across_px, SEARCH_MIN_PX, SEARCH_MAX_PX) + extra_px) / STEPS;
    point edge[NORMALS];
    double strength[NORMALS];
    for (int j = 0; j < NORMALS; j++) {
        const point base = corner + (start + (stop - start) * j / (NORMALS - 1)) * along;
        edge[j] = base + edge_on_normal(image, base, step * normal, prefer_black, &strength[j]) * step * normal;
    }
    return fit_line(edge, strength);
}

/* One pass over a square: the intersections of its edges; a corner whose edges were not both seen stays. */
static void pass(const image_t *image, point *corners, uint8_t *ever, double extra_px, int prefer_black) {
    point side[CORNERS], along[CORNERS], found[CORNERS];
    double length[CORNERS], turn = 0.0;
    for (int k = 0; k < CORNERS; k++) {
        side[k] = corners[(k + 1) % CORNERS] - corners[k];
        length[k] = fmax(cabs(side[k]), 1e-6);
        along[k] = side[k] / length[k];
    }
    for (int k = 0; k < CORNERS; k++) turn += cimag(conj(side[k]) * side[(k + 1) % CORNERS]);
    /* outward: for the clockwise order in the image (y down), the left hand of the way to the next corner */
    const double outward = turn > 0.0 ? 1.0 : turn < 0.0 ? -1.0 : 0.0;
    for (int k = 0; k < CORNERS; k++) {
        const int before = (k + CORNERS - 1) % CORNERS;
        const line_t next = half_edge(image, corners[k], along[k], -I * outward * along[k], length[k], length[before],
                                      extra_px, prefer_black);
        const line_t last = half_edge(image, corners[k], -along[before], -I * outward * along[before], length[before],
                                      length[k], extra_px, prefer_black);
        const double cross = cimag(conj(next.along) * last.along);
        found[k] = corners[k];
        if (!next.seen || !last.seen || !(fabs(cross) > MIN_CROSSING)) continue;
        found[k] = next.at + cimag(conj(last.at - next.at) * last.along) / cross * next.along;
        ever[k] = 1;
    }
    for (int k = 0; k < CORNERS; k++) corners[k] = found[k];
}

/* Refine the corners of n squares in place.
 *
 *   pixels         rows x columns, a row every `stride` bytes
 *   corners        n x 4 x 2, in order around each square [px]
 *   uncertainty    n; error of the given corners beyond the usual error of a contour [px]
 *   seen           n x 4; 1 where the corner's edges were seen, any other corner is as given
 */
void edges_refine(const uint8_t *pixels, int64_t rows, int64_t columns, int64_t stride, int64_t n, double *corners,
                  const double *uncertainty, uint8_t *seen) {
    const image_t image = {pixels, rows, columns, stride};
    for (int64_t i = 0; i < n; i++) {
        point given[CORNERS], refined[CORNERS];
        uint8_t *ever = seen + CORNERS * i;
        for (int k = 0; k < CORNERS; k++) {
            given[k] = refined[k] = corners[8 * i + 2 * k] + I * corners[8 * i + 2 * k + 1];
            ever[k] = 0;
        }
        for (int p = 0; p < PASSES; p++) pass(&image, refined, ever, p == 0 ? uncertainty[i] : 0.0, p < PASSES - 1);
        for (int k = 0; k < CORNERS; k++) {
            const double longest = fmax(cabs(given[(k + 1) % CORNERS] - given[k]),
                                        cabs(given[k] - given[(k + CORNERS - 1) % CORNERS]));
            const double limit = clip(MAX_SHIFT_OF_SIDE * longest, MAX_SHIFT_LEAST_PX, MAX_SHIFT_PX) + uncertainty[i];
            const int near = cabs(refined[k] - given[k]) < limit;
            ever[k] = near && ever[k];
            corners[8 * i + 2 * k] = creal(near ? refined[k] : given[k]);
            corners[8 * i + 2 * k + 1] = cimag(near ? refined[k] : given[k]);
        }
    }
}
