/* Rays, distances and contact planes of the solids of a world.
 *
 * Every solid is a box, a plate (a box without height), a round cylinder or a closed triangle mesh in a frame S of its
 * own. Boxes, plates and cylinders are exact. A mesh has a tree of bounding boxes over its triangles, which are sorted
 * along a space-filling curve: node 1 is the root, node i has the children 2 i and 2 i + 1, and the last `leaves` nodes
 * are one triangle each (the last one is repeated up to a power of two). SI units. solids.py has the mirror of solid_t and checks its size.
 *
 * Closest point of a triangle: C. Ericson, "Real-Time Collision Detection", section 5.1.5. Ray against a triangle:
 * T. Moeller, B. Trumbore, "Fast, minimum storage ray-triangle intersection", Journal of Graphics Tools 2(1), 1997.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BOX, CYLINDER, MESH };

typedef struct {
    int64_t kind;
    double p_W[3];
    double R_WS[3][3];
    double half[3];                 /* box: half its sides, a plate's last one is 0; cylinder: radius, radius, half length */
    double bounds_W[2][3];          /* low and high corner */
    const double (*bounds)[2][3];   /* of a mesh's nodes, in S */
    const double (*corners)[3][3];  /* of a mesh's triangles, in S */
    int64_t leaves;
} solid_t;

/* A contact shape: all points within ball_m of a disc about `axis`; a disc, a sphere or a point where a number is 0. */
typedef struct {
    double centre_W[3];
    double velocity_W[3];
    double axis_W[3];
    double radius_m, ball_m;
} shape_t;

/* What a shape remembers of a solid: the plane n·x = d that had it on its free side. */
typedef struct {
    double plane_W[4];
    int64_t known;
} memory_t;

#define STACK 64        /* nodes that wait: two for every level of the tree */
#define TOUCHING_M 1e-9 /* nearer than this a direction is rounding */
#define PROXY_M 0.01    /* a shape that touches is judged from this far outside: edges turn its plane over this distance */
#define ITERATIONS 24   /* of the search for the closest pair */
#define PAIR_M 1e-6     /* its precision */
#define CONSTRAINTS 8   /* planes that one shape can be behind at a time */

int64_t solid_size(void) { return sizeof(solid_t); }
int64_t shape_size(void) { return sizeof(shape_t); }
int64_t memory_size(void) { return sizeof(memory_t); }

static double dot(const double *a, const double *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

static void subtract(const double *a, const double *b, double *out)
{
    for (int i = 0; i < 3; i++) out[i] = a[i] - b[i];
}

static void cross(const double *a, const double *b, double *out)
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

static void direction_to_S(const solid_t *s, const double *v_W, double *v_S)
{
    for (int i = 0; i < 3; i++) v_S[i] = s->R_WS[0][i] * v_W[0] + s->R_WS[1][i] * v_W[1] + s->R_WS[2][i] * v_W[2];
}

static void point_to_S(const solid_t *s, const double *p_W, double *p_S)
{
    double d[3];
    subtract(p_W, s->p_W, d);
    direction_to_S(s, d, p_S);
}

static void direction_to_W(const solid_t *s, const double *v_S, double *v_W)
{
    for (int i = 0; i < 3; i++) v_W[i] = dot(s->R_WS[i], v_S);
}

/* --- rays: distance along a ray, in lengths of its direction; infinity where it misses ------------------------------- */

/* The part [*from, *to] of a ray between low and high; returns 0 where it is empty. */
static int slab(double origin, double direction, double low, double high, double *from, double *to)
{
    if (direction == 0) return origin >= low && origin <= high;
    double a = (low - origin) / direction, b = (high - origin) / direction;
    if (a > b) {
        const double c = a;
        a = b, b = c;
    }
    if (a > *from) *from = a;
    if (b < *to) *to = b;
    return *from <= *to;
}

static int in_bounds(const double *o, const double *d, const double *low, const double *high, double limit)
{
    double from = 0, to = limit;
    return slab(o[0], d[0], low[0], high[0], &from, &to) && slab(o[1], d[1], low[1], high[1], &from, &to) &&
           slab(o[2], d[2], low[2], high[2], &from, &to);
}

/* The nearer end of [from, to] that lies ahead: a ray that begins inside hits the wall in front of it. */
static double ahead(double from, double to) { return from >= 0 ? from : to >= 0 ? to : INFINITY; }

static double ray_box(const double *half, const double *o, const double *d)
{
    double from = -INFINITY, to = INFINITY;
    for (int i = 0; i < 3; i++)
        if (!slab(o[i], d[i], -half[i], half[i], &from, &to)) return INFINITY;
    return ahead(from, to);
}

static double ray_cylinder(const double *half, const double *o, const double *d)
{
    double from = -INFINITY, to = INFINITY;
    if (!slab(o[2], d[2], -half[2], half[2], &from, &to)) return INFINITY;
    const double a = d[0] * d[0] + d[1] * d[1], b = o[0] * d[0] + o[1] * d[1];
    const double c = o[0] * o[0] + o[1] * o[1] - half[0] * half[0];
    if (a == 0) return c <= 0 ? ahead(from, to) : INFINITY;
    const double root = b * b - a * c;
    if (root < 0) return INFINITY;
    const double q = -(b + copysign(sqrt(root), b)); /* without cancellation */
    double first = q / a, second = q != 0 ? c / q : 0;
    if (first > second) {
        const double swap = first;
        first = second, second = swap;
    }
    if (first > from) from = first;
    if (second < to) to = second;
    return from <= to ? ahead(from, to) : INFINITY;
}

static double ray_triangle(const double corners[3][3], const double *o, const double *d)
{
    double edge1[3], edge2[3], p[3], from0[3], q[3];
    subtract(corners[1], corners[0], edge1);
    subtract(corners[2], corners[0], edge2);
    cross(d, edge2, p);
    const double determinant = dot(edge1, p);
    if (determinant == 0) return INFINITY;
    subtract(o, corners[0], from0);
    const double slack = 1e-12, u = dot(from0, p) / determinant; /* a ray along a common edge hits one of its triangles */
    if (u < -slack || u > 1 + slack) return INFINITY;
    cross(from0, edge1, q);
    const double v = dot(d, q) / determinant;
    if (v < -slack || u + v > 1 + slack) return INFINITY;
    const double t = dot(edge2, q) / determinant;
    return t >= 0 ? t : INFINITY;
}

static double ray_mesh(const solid_t *s, const double *o, const double *d, double best, int64_t *hit)
{
    int64_t stack[STACK], waiting = 0, first = s->leaves;
    stack[waiting++] = 1;
    while (waiting) {
        const int64_t node = stack[--waiting];
        if (!in_bounds(o, d, s->bounds[node][0], s->bounds[node][1], best)) continue;
        if (node >= first) {
            const double t = ray_triangle(s->corners[node - first], o, d);
            if (t < best) best = t, *hit = node - first;
            continue;
        }
        stack[waiting++] = 2 * node;
        stack[waiting++] = 2 * node + 1;
    }
    return best;
}

/* Distance [m] along n unit directions d_W from the points o_W to the first solid; infinity where there is none. */
void first_hit(const solid_t *solids, int64_t count, const double (*o_W)[3], const double (*d_W)[3], int64_t n,
               double *distance)
{
    for (int64_t k = 0; k < n; k++) {
        double best = INFINITY;
        for (int64_t j = 0; j < count; j++) {
            const solid_t *s = &solids[j];
            double o[3], d[3], t;
            int64_t hit;
            if (!in_bounds(o_W[k], d_W[k], s->bounds_W[0], s->bounds_W[1], best)) continue;
            point_to_S(s, o_W[k], o);
            direction_to_S(s, d_W[k], d);
            if (s->kind == BOX)
                t = ray_box(s->half, o, d);
            else if (s->kind == CYLINDER)
                t = ray_cylinder(s->half, o, d);
            else
                t = ray_mesh(s, o, d, best, &hit);
            if (t < best) best = t;
        }
        distance[k] = best;
    }
}

/* --- closest points: the surface point q_S of a solid that is closest to p_S; returns the signed distance [m] -------- */

static double clamp(double x, double limit) { return x > limit ? limit : x < -limit ? -limit : x; }

static double distance_of(const double *a, const double *b)
{
    double d[3];
    subtract(a, b, d);
    return sqrt(dot(d, d));
}

/* n_S: outward normal of the solid at q_S, which is the direction from q_S to p_S outside, else of the nearest face. Nearer
 * than TOUCHING_M, where the direction is rounding or 0/0, it is that of the nearest face, too. */
static double closest_box(const double *half, const double *p, double *q, double *n)
{
    int inside = 1, axis = 0;
    double least = INFINITY;
    for (int i = 0; i < 3; i++) {
        const double spare = half[i] - fabs(p[i]);
        q[i] = clamp(p[i], half[i]);
        n[i] = 0;
        if (spare < 0) inside = 0;
        if (spare < least) least = spare, axis = i;
    }
    if (inside) {
        n[axis] = p[axis] < 0 ? -1 : 1;
        q[axis] = n[axis] * half[axis];
        return -least;
    }
    const double distance = distance_of(p, q);
    for (int i = 0; i < 3 && distance >= TOUCHING_M; i++) n[i] = (p[i] - q[i]) / distance;
    if (distance < TOUCHING_M) n[axis] = p[axis] < 0 ? -1 : 1;
    return distance;
}

static double closest_cylinder(const double *half, const double *p, double *q, double *n)
{
    const double r = sqrt(p[0] * p[0] + p[1] * p[1]), side = half[0] - r, end = half[2] - fabs(p[2]);
    const double x = r > 0 ? p[0] / r : 1, y = r > 0 ? p[1] / r : 0, up = p[2] < 0 ? -1 : 1;
    memcpy(q, p, 3 * sizeof *q);
    n[0] = n[1] = n[2] = 0;
    if (side < 0 || side <= end) q[0] = half[0] * x, q[1] = half[0] * y;
    if (end < 0 || end < side) q[2] = half[2] * up;
    if (side >= 0 && end >= 0) {
        if (side <= end)
            n[0] = x, n[1] = y;
        else
            n[2] = up;
        return -fmin(side, end);
    }
    if (side >= 0) memcpy(q, p, 2 * sizeof *q); /* above an end */
    if (end >= 0) q[2] = p[2];                  /* beside the shell */
    const double distance = distance_of(p, q);
    for (int i = 0; i < 3 && distance >= TOUCHING_M; i++) n[i] = (p[i] - q[i]) / distance;
    if (distance < TOUCHING_M && side <= end) n[0] = x, n[1] = y;
    if (distance < TOUCHING_M && end < side) n[2] = up;
    return distance;
}

static void closest_on_triangle(const double t[3][3], const double *p, double *q)
{
    double ab[3], ac[3], ap[3], bp[3], cp[3];
    subtract(t[1], t[0], ab);
    subtract(t[2], t[0], ac);
    subtract(p, t[0], ap);
    subtract(p, t[1], bp);
    subtract(p, t[2], cp);
    const double d1 = dot(ab, ap), d2 = dot(ac, ap), d3 = dot(ab, bp), d4 = dot(ac, bp), d5 = dot(ab, cp), d6 = dot(ac, cp);
    const double va = d3 * d6 - d5 * d4, vb = d5 * d2 - d1 * d6, vc = d1 * d4 - d3 * d2;
    double v, w;
    if (d1 <= 0 && d2 <= 0)
        v = 0, w = 0;
    else if (d3 >= 0 && d4 <= d3)
        v = 1, w = 0;
    else if (d6 >= 0 && d5 <= d6)
        v = 0, w = 1;
    else if (vc <= 0 && d1 >= 0 && d3 <= 0)
        v = d1 / (d1 - d3), w = 0;
    else if (vb <= 0 && d2 >= 0 && d6 <= 0)
        v = 0, w = d2 / (d2 - d6);
    else if (va <= 0 && d4 - d3 >= 0 && d5 - d6 >= 0)
        w = (d4 - d3) / (d4 - d3 + d5 - d6), v = 1 - w;
    else
        v = vb / (va + vb + vc), w = vc / (va + vb + vc);
    for (int i = 0; i < 3; i++) q[i] = t[0][i] + v * ab[i] + w * ac[i];
}

static double squared_to_bounds(const double bounds[2][3], const double *p)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        const double d = p[i] < bounds[0][i] ? bounds[0][i] - p[i] : p[i] > bounds[1][i] ? p[i] - bounds[1][i] : 0;
        sum += d * d;
    }
    return sum;
}

static void normal_of(const double t[3][3], double *n)
{
    double ab[3], ac[3];
    subtract(t[1], t[0], ab);
    subtract(t[2], t[0], ac);
    cross(ab, ac, n);
    const double length = sqrt(dot(n, n));
    for (int i = 0; i < 3; i++) n[i] /= length;
}

/* Outside or inside is where the ray to the middle of the closest triangle meets its first triangle from. */
static double closest_mesh(const solid_t *s, const double *p, double *q, double *n)
{
    int64_t stack[STACK], waiting = 0, first = s->leaves, found = 0;
    double best = INFINITY, d[3];
    stack[waiting++] = 1;
    while (waiting) {
        const int64_t node = stack[--waiting];
        if (squared_to_bounds(s->bounds[node], p) >= best) continue;
        if (node >= first) {
            double on[3];
            closest_on_triangle(s->corners[node - first], p, on);
            subtract(p, on, d);
            if (dot(d, d) < best) best = dot(d, d), found = node - first, memcpy(q, on, sizeof on);
            continue;
        }
        const double left = squared_to_bounds(s->bounds[2 * node], p), right = squared_to_bounds(s->bounds[2 * node + 1], p);
        stack[waiting++] = left < right ? 2 * node + 1 : 2 * node; /* the nearer child is taken first */
        stack[waiting++] = left < right ? 2 * node : 2 * node + 1;
    }
    double to[3] = {-p[0], -p[1], -p[2]}, facing[3];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 3; i++) to[i] += s->corners[found][k][i] / 3;
    int64_t met = found;
    ray_mesh(s, p, to, INFINITY, &met);
    normal_of(s->corners[met], facing);
    const double distance = sqrt(best), sign = dot(facing, to) > 0 ? -1 : 1;
    if (distance < TOUCHING_M)
        normal_of(s->corners[found], n);
    else
        for (int i = 0; i < 3; i++) n[i] = sign * (p[i] - q[i]) / distance;
    return sign * distance;
}

static double closest_S(const solid_t *s, const double *p, double *q, double *n)
{
    if (s->kind == BOX) return closest_box(s->half, p, q, n);
    if (s->kind == CYLINDER) return closest_cylinder(s->half, p, q, n);
    return closest_mesh(s, p, q, n);
}

static double closest(const solid_t *s, const double *p_W, double *q_W, double *n_W)
{
    double p[3], q[3], n[3];
    point_to_S(s, p_W, p);
    const double distance = closest_S(s, p, q, n);
    direction_to_W(s, q, q_W);
    for (int i = 0; i < 3; i++) q_W[i] += s->p_W[i];
    direction_to_W(s, n, n_W);
    return distance;
}

/* The solid closest to each of n points: signed distance [m], its surface point and outward normal there, its index. */
void nearest(const solid_t *solids, int64_t count, const double (*p_W)[3], int64_t n, double *distance, double (*q_W)[3],
             double (*n_W)[3], int64_t *index)
{
    for (int64_t k = 0; k < n; k++) {
        distance[k] = INFINITY;
        index[k] = -1;
        for (int64_t j = 0; j < count; j++) {
            const double best = fmax(distance[k], 0);
            if (squared_to_bounds(solids[j].bounds_W, p_W[k]) > best * best) continue;
            double q[3], out[3];
            const double d = closest(&solids[j], p_W[k], q, out);
            if (d >= distance[k]) continue;
            distance[k] = d, index[k] = j;
            memcpy(q_W[k], q, sizeof q), memcpy(n_W[k], out, sizeof out);
        }
    }
}

/* --- contact --------------------------------------------------------------------------------------------------------- */

/* Distance of a shape's deepest point from the plane through the origin with the normal n: least n·x of the shape. */
static double least_along(const shape_t *shape, const double *centre_W, const double *n)
{
    const double axial = dot(n, shape->axis_W), across = 1 - axial * axial;
    return dot(n, centre_W) - shape->radius_m * sqrt(across > 0 ? across : 0) - shape->ball_m;
}

/* The point q of a shape's disc that is deepest along -n; where the disc is parallel to the plane, its centre. */
static void deepest(const shape_t *shape, const double *centre_W, const double *n, double *q)
{
    const double axial = dot(n, shape->axis_W), across = sqrt(fmax(1 - axial * axial, 0));
    for (int i = 0; i < 3; i++) {
        q[i] = centre_W[i];
        if (across > TOUCHING_M) q[i] -= shape->radius_m * (n[i] - axial * shape->axis_W[i]) / across;
    }
}

/* The point q of a shape's disc that is closest to p. */
static void closest_of_disc(const shape_t *shape, const double *centre_W, const double *p, double *q)
{
    double d[3];
    subtract(p, centre_W, d);
    const double axial = dot(d, shape->axis_W);
    for (int i = 0; i < 3; i++) d[i] -= axial * shape->axis_W[i];
    const double r = sqrt(dot(d, d)), scale = r > shape->radius_m ? shape->radius_m / r : 1;
    for (int i = 0; i < 3; i++) q[i] = centre_W[i] + scale * d[i];
}

/* The plane of a solid that has a shape furthest on its free side.
 *
 * Projects a point on the disc and on the solid in turn, which ends at the closest pair; every plane on the way touches
 * the solid, so the best one is kept, and it is exact where its distance is that of the pair.
 */
static void separate(const solid_t *s, const shape_t *shape, const double *centre_W, double *plane_W)
{
    double q[3], rim[3], best = -INFINITY;
    memcpy(q, centre_W, sizeof q);
    for (int k = 0; k < ITERATIONS; k++) {
        double on[2][3], n[2][3], distance[2];
        distance[0] = closest(s, q, on[0], n[0]);
        deepest(shape, centre_W, n[0], rim);
        distance[1] = closest(s, rim, on[1], n[1]);
        for (int i = 0; i < 2; i++) {
            const double offset = dot(n[i], on[i]), gap = least_along(shape, centre_W, n[i]) - offset;
            if (gap > best) best = gap, memcpy(plane_W, n[i], sizeof n[i]), plane_W[3] = offset;
        }
        const int nearer = distance[1] < distance[0];
        if (distance[nearer] - shape->ball_m - best < PAIR_M) return;
        closest_of_disc(shape, centre_W, on[nearer], q);
    }
}

/* The shortest displacement v with v·n_j ≥ depth_j for all planes (C. Hildreth's method); returns its length. */
static double way_out(double (*n)[3], const double *depth, int count, double *v)
{
    double weight[CONSTRAINTS] = {0};
    v[0] = v[1] = v[2] = 0;
    for (int sweep = 0; sweep < ITERATIONS; sweep++)
        for (int j = 0; j < count; j++) {
            const double more = fmax(depth[j] - dot(v, n[j]), -weight[j]);
            weight[j] += more;
            for (int i = 0; i < 3; i++) v[i] += more * n[j][i];
        }
    return sqrt(dot(v, v));
}

/* The plane beside each of n shapes for the next `ahead_s`, and the solid it belongs to (-1, zeros: none is in reach).
 *
 * A shape that is in a solid stays on the side from which it came: it is judged from where it would be if the plane of
 * the step before had kept it out. Behind several planes it gets the one across its shortest way out of all of them,
 * else the one that it meets first.
 */
void contact_planes(const solid_t *solids, int64_t count, const shape_t *shapes, int64_t n, memory_t *memory,
                    double ahead_s, double (*planes_W)[4], int64_t *index)
{
    for (int64_t k = 0; k < n; k++) {
        const shape_t *shape = &shapes[k];
        const double reach = shape->radius_m + shape->ball_m + 2 * PROXY_M +
                             2 * ahead_s * sqrt(dot(shape->velocity_W, shape->velocity_W));
        double normals[CONSTRAINTS][3], depths[CONSTRAINTS], soonest = INFINITY, deepest_m = 0;
        int behind = 0;
        memset(planes_W[k], 0, sizeof planes_W[k]);
        index[k] = -1;
        for (int64_t j = 0; j < count; j++) {
            memory_t *known = &memory[k * count + j];
            const double *old = known->plane_W;
            const double depth = known->known ? old[3] - least_along(shape, shape->centre_W, old) : 0;
            const double far = reach + fmax(depth, 0);
            if (squared_to_bounds(solids[j].bounds_W, shape->centre_W) > far * far) {
                known->known = 0;
                continue;
            }
            double from[3], plane[4];
            memcpy(from, shape->centre_W, sizeof from);
            for (int i = 0; i < 3 && known->known && depth > -PROXY_M; i++) from[i] += (depth + PROXY_M) * old[i];
            separate(&solids[j], shape, from, plane);
            memcpy(known->plane_W, plane, sizeof plane);
            known->known = 1;
            const double gap = least_along(shape, shape->centre_W, plane) - plane[3];
            if (gap < 0 && behind < CONSTRAINTS) {
                if (-gap > deepest_m) deepest_m = -gap, index[k] = j;
                memcpy(normals[behind], plane, sizeof normals[behind]);
                depths[behind++] = -gap;
            } else if (!behind) {
                const double closing = -dot(plane, shape->velocity_W), time = gap / fmax(closing, 1e-3);
                if (time < soonest) soonest = time, index[k] = j, memcpy(planes_W[k], plane, sizeof plane);
            }
        }
        if (behind) {
            double v[3];
            const double length = way_out(normals, depths, behind, v);
            for (int i = 0; i < 3; i++) planes_W[k][i] = v[i] / length;
            planes_W[k][3] = least_along(shape, shape->centre_W, planes_W[k]) + length;
        }
    }
}
