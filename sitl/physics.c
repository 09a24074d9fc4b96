/* Rigid body with 3 to 16 rotors, advanced in steps of one millisecond.
 *
 * Frames: W is ENU (z up, the ground is the plane z = 0), B is FLU with its origin in the centre of mass.
 * q_WB = (w, x, y, z) rotates vectors of B into W. SI units.
 *
 *   ṗ = v                              m v̇ = R (F_rotors + F_drag) + F_ground + F_solids + F_extra - m g e_z
 *   q̇ = ½ q ⊗ (0, ω)                   J ω̇ = τ - ω × (J ω + h),   h = Σ s_i J_r Ω_i a_i, a_i: axis of rotor i
 *
 * Integrated by the classic Runge-Kutta method with rotor speeds, wind and friction anchors held in a step; rotor
 * speeds follow their commands by an exactly discretised first-order lag. Rigid body and rotor drag: R. Mahony,
 * V. Kumar, P. Corke, "Multirotor aerial vehicles", IEEE Robotics & Automation Magazine 19(3), 2012, equations
 * (1)-(10). Both structs have a mirror in plant.py, which compares the sizes when it loads this library.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROTORS_MAX 16 /* arrays have places for so many, and `rotors` of them are used */
#define FEET 4
#define GROUND_CONTACTS_MAX (FEET + ROTORS_MAX) /* feet and hubs: a craft on its back lies on its rotor hubs */
#define CONTACTS_MAX (GROUND_CONTACTS_MAX + 1)  /* with solids: also the hull, around the origin, the last */
#define DELAY_MAX 201            /* steps in the command ring, one more than the longest delay */
#define STEP_S 1e-3
#define PI 3.14159265358979323846
#define AIR_DENSITY_KG_M3 1.225
/* Closest approach of the curves of air near surfaces, in rotor radii; nearer, they stay as they are there. */
#define GROUND_NEAREST 0.5   /* the source gives none below; 1/(1 - (R/4z)²) diverges at 0.25 */
#define CEILING_NEAREST 0.25 /* the theory's uniform inflow fails; at contact it diverges */
#define WALL_NEAREST 1.0     /* the rim touches */
#define STANDING_NORMAL_Z 0.7 /* a surface this flat or flatter (45 degrees) can be stood on */

typedef struct {
    int64_t rotors;
    double gravity_m_s2;
    double mass_kg;
    double inertia_kg_m2[3];
    double rotor_B[ROTORS_MAX][3];              /* hubs */
    double axis_B[ROTORS_MAX][3];               /* unit vectors of thrust */
    double rotor_spin[ROTORS_MAX];              /* +1: counter-clockwise seen from above */
    double thrust_coefficient_n_s2[ROTORS_MAX]; /* T = c Ω² */
    double torque_per_thrust_m[ROTORS_MAX];
    double rotor_inertia_kg_m2;
    double speed_max_rad_s;
    double speed_full_rad_s; /* towards which a rotor spins up at full command and reference voltage */
    double quadratic_fraction;
    double rise_decay; /* exp(-step / time constant) of a rotor that gains speed */
    double fall_decay; /* … and of one that loses it */
    double in_plane_drag;
    double axial_drag;
    double power_max_w;
    double drag_linear[3];
    double drag_quadratic[3];
    double drag_angular[3];
    int64_t drag_model;           /* of the enum below */
    double linear_drag[3];        /* D of LINEAR */
    double rotor_drag_k;          /* of TOTAL_THRUST and EACH_ROTOR: (k T + b) c_d */
    double rotor_drag_b;          /* of one rotor */
    double rotor_drag_c_d;
    int64_t ground_effect; /* whether the plane z = 0 counts as a surface under the rotors */
    double contact_B[GROUND_CONTACTS_MAX][3];
    double contact_stiffness_n_m;
    double contact_damping_n_s_m;
    double friction;
    double disc_radius_m;
    double hull_disc_m, hull_ball_m; /* the hull: all points within hull_ball_m of a disc around the origin */
    double surface_stiffness_n_m[CONTACTS_MAX];
    double surface_damping_n_s_m[CONTACTS_MAX];
    int64_t delay_steps;
} parameters_t;

typedef struct {
    /* the rigid body; this order is the state vector of the integrator */
    double p_W[3];
    double v_W[3];
    double q_WB[4];
    double omega_B[3];
    /* inputs of a call */
    double command[ROTORS_MAX];
    double wind_W[3];
    double force_W[3];
    double speed_scale; /* rotor speed at the present battery voltage over that at the reference voltage */
    double clearance_m[ROTORS_MAX][3]; /* free distance from the hub: down and up its axis, sideways to the nearest wall */
    double side_W[ROTORS_MAX][3];      /* unit vector towards that wall */
    double surface_W[CONTACTS_MAX][4]; /* plane beside each contact shape: unit normal into the free space, offset */
    /* the rest of the state */
    double rotor_speed_rad_s[ROTORS_MAX];
    double rotor_acceleration_rad_s2[ROTORS_MAX];
    double anchor_W[GROUND_CONTACTS_MAX][2]; /* rest position of a touching point */
    int64_t touching[GROUND_CONTACTS_MAX];
    double ring[DELAY_MAX][ROTORS_MAX];
    int64_t ring_head;
    double held_W[CONTACTS_MAX][4];   /* the surface of the last step */
    double sunk_m[CONTACTS_MAX];      /* depth in the surface that the spring does not feel */
    double slack_W[CONTACTS_MAX][3];  /* how far a shape has moved along its surface from its rest position */
    /* outputs */
    double specific_force_B[3];
    double motor_thrust_n[ROTORS_MAX];
    double free_thrust_n[ROTORS_MAX]; /* what it would be far from any surface */
    double disturbance_W[3];
    double rotor_energy_j; /* electrical, since the caller last set it to zero */
    int64_t on_ground;
    double contact_W[CONTACTS_MAX][3];       /* deepest point of a shape against its surface */
    double contact_force_W[CONTACTS_MAX][3]; /* of the surface on it */
    double contact_depth_m[CONTACTS_MAX];
    double contact_peak_n[CONTACTS_MAX]; /* largest force since the caller last set it to zero */
} state_t;

enum { BLADES_AND_BODY, LINEAR, TOTAL_THRUST, EACH_ROTOR }; /* drag_model */
enum { BELOW, ABOVE, SIDE };                               /* clearance_m */
enum { P = 0, V = 3, Q = 6, W = 10, STATES = 13 };

int64_t parameters_size(void) { return sizeof(parameters_t); }
int64_t state_size(void) { return sizeof(state_t); }

/* The fraction x in [0, 1]; a command that is not a number counts as 0. */
static double clip(double x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

static void cross(const double *a, const double *b, double *out)
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

static double dot(const double *a, const double *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/* The part of v in the plane with this unit normal; returns the other part, that along the normal. */
static double in_plane(const double *v, const double *normal, double *out)
{
    const double along = dot(v, normal);
    for (int i = 0; i < 3; i++) out[i] = v[i] - along * normal[i];
    return along;
}

static int64_t ground_contacts(const parameters_t *c) { return FEET + c->rotors; }
static int64_t contacts(const parameters_t *c) { return ground_contacts(c) + 1; }

static void rotation(const double *q, double R[3][3])
{
    const double w = q[0], x = q[1], y = q[2], z = q[3];
    R[0][0] = 1 - 2 * (y * y + z * z), R[0][1] = 2 * (x * y - w * z), R[0][2] = 2 * (x * z + w * y);
    R[1][0] = 2 * (x * y + w * z), R[1][1] = 1 - 2 * (x * x + z * z), R[1][2] = 2 * (y * z - w * x);
    R[2][0] = 2 * (x * z - w * y), R[2][1] = 2 * (y * z + w * x), R[2][2] = 1 - 2 * (x * x + y * y);
}

static void to_world(double R[3][3], const double *v_B, double *v_W)
{
    for (int i = 0; i < 3; i++) v_W[i] = R[i][0] * v_B[0] + R[i][1] * v_B[1] + R[i][2] * v_B[2];
}

static void to_body(double R[3][3], const double *v_W, double *v_B)
{
    for (int i = 0; i < 3; i++) v_B[i] = R[0][i] * v_W[0] + R[1][i] * v_W[1] + R[2][i] * v_W[2];
}

/* Force and torque of the air on body and rotor discs, both in B, added to F and M; one of four models.
 *
 * air_B: velocity of the body against the air; toward_B: that of the air at each rotor towards a wall, or null. The
 * default: the body's drag grows linearly and quadratically with air velocity; a rotor disc is dragged in its plane in
 * proportion to speed times air velocity (blade flapping and induced drag), and loses thrust when it moves along its
 * axis; both at the hub, so they also damp rotations. The others are those of W. Kim et al., "High-Fidelity Drone
 * Simulation with Depth Camera Noise and Improved Air Drag Force Models", Applied Sciences 13, 10631, 2023: LINEAR is
 * equation 5, D v (AirSim's); TOTAL_THRUST equation 13, (k T + b) c_d in the rotors' plane, at the centre of mass;
 * EACH_ROTOR equation 11, the same for each rotor with ω × d. The angular drag of the hull belongs to all.
 */
static void air(const parameters_t *c, const state_t *s, const double *air_B, double toward_B[ROTORS_MAX][3],
                const double *omega_B, double *F, double *M)
{
    static double still[ROTORS_MAX][3];
    const double *rotor_speed = s->rotor_speed_rad_s;
    const double speed = sqrt(air_B[0] * air_B[0] + air_B[1] * air_B[1] + air_B[2] * air_B[2]);
    if (!toward_B) toward_B = still;
    for (int i = 0; i < 3; i++) {
        if (c->drag_model == BLADES_AND_BODY) F[i] -= (c->drag_linear[i] + c->drag_quadratic[i] * speed) * air_B[i];
        M[i] -= c->drag_angular[i] * omega_B[i];
    }
    for (int64_t k = 0; k < c->rotors; k++) {
        const double *wall = toward_B[k], *axis = c->axis_B[k];
        double hub[3], v[3], across[3], f[3], m[3];
        cross(omega_B, c->rotor_B[k], hub);
        if (c->drag_model == BLADES_AND_BODY) {
            for (int i = 0; i < 3; i++) v[i] = air_B[i] + hub[i] - wall[i];
            const double along = in_plane(v, axis, across);
            for (int i = 0; i < 3; i++)
                f[i] = -c->in_plane_drag * rotor_speed[k] * across[i] - c->axial_drag * rotor_speed[k] * along * axis[i];
        } else if (c->drag_model == LINEAR) {
            for (int i = 0; i < 3; i++) F[i] -= c->linear_drag[i] * (air_B[i] - wall[i]) / c->rotors;
            continue;
        } else {
            const int each = c->drag_model == EACH_ROTOR;
            const double drag = (c->rotor_drag_k * s->motor_thrust_n[k] + c->rotor_drag_b) * c->rotor_drag_c_d;
            for (int i = 0; i < 3; i++) v[i] = air_B[i] + (each ? hub[i] : 0) - wall[i];
            in_plane(v, axis, across);
            for (int i = 0; i < 3; i++) f[i] = -drag * across[i];
            if (!each) {
                for (int i = 0; i < 3; i++) F[i] += f[i];
                continue;
            }
        }
        cross(c->rotor_B[k], f, m);
        for (int i = 0; i < 3; i++) F[i] += f[i], M[i] += m[i];
    }
}

/* Induced velocity of a hovering rotor with this thrust. */
static double induced_speed(const parameters_t *c, double thrust_n)
{
    const double area_m2 = PI * c->disc_radius_m * c->disc_radius_m;
    return sqrt(thrust_n / (2 * AIR_DENSITY_KG_M3 * area_m2));
}

/* Thrust of rotor k near surfaces over that far from any, at the same rotor speed; air_B: velocity against the air.
 *
 * Ground: I. C. Cheeseman, W. E. Bennett, "The effect of the ground on a helicopter rotor in forward flight", ARC R&M
 * 3021, 1955: 1 / (1 - (R/4z)² / (1 + (V/v_i)²)). Ceiling: Y. H. Hsiao, P. Chirarattananon, "Ceiling effects for hybrid
 * aerial-surface locomotion of small rotorcraft", IEEE/ASME Transactions on Mechatronics 24(5), 2019: momentum theory
 * with radial inflow through the gap gives γ = (1 + sqrt(1 + (R/z)² / 8)) / 2.
 */
static double near_surfaces(const parameters_t *c, const state_t *s, int64_t k, double R[3][3], const double *air_B)
{
    const double radius = c->disc_radius_m, free_n = s->free_thrust_n[k], upright = dot(R[2], c->axis_B[k]);
    double below = s->clearance_m[k][BELOW], factor = 1;
    if (c->ground_effect && upright > 0) {
        double hub_W[3];
        to_world(R, c->rotor_B[k], hub_W);
        below = fmin(below, (s->p_W[2] + hub_W[2]) / upright);
    }
    if (below < INFINITY && free_n > 0) {
        const double v_i = induced_speed(c, free_n), z = fmax(below, GROUND_NEAREST * radius);
        double across[3];
        in_plane(air_B, c->axis_B[k], across);
        const double along2 = dot(across, across) / (v_i * v_i);
        factor /= 1 - radius * radius / (16 * z * z) / (1 + along2);
    }
    if (s->clearance_m[k][ABOVE] < INFINITY) {
        const double z = fmax(s->clearance_m[k][ABOVE], CEILING_NEAREST * radius);
        factor *= 0.5 + 0.5 * sqrt(1 + radius * radius / (8 * z * z));
    }
    return factor;
}

/* Velocity in B of the air at each rotor towards the wall beside it.
 *
 * The inflow of a rotor is that of a sink of π R² v_i; a wall at distance d is an image sink at 2 d, as the ground of
 * Cheeseman and Bennett is an image source, and draws the air at the rotor with v_i (R/4d)². It acts through the drag.
 */
static void wall_inflow(const parameters_t *c, const state_t *s, double R[3][3], double toward_B[ROTORS_MAX][3])
{
    for (int64_t k = 0; k < c->rotors; k++) {
        toward_B[k][0] = toward_B[k][1] = toward_B[k][2] = 0;
        if (!(s->clearance_m[k][SIDE] < INFINITY)) continue;
        const double ratio = c->disc_radius_m / (4 * fmax(s->clearance_m[k][SIDE], WALL_NEAREST * c->disc_radius_m));
        const double speed = induced_speed(c, s->free_thrust_n[k]) * ratio * ratio;
        to_body(R, s->side_W[k], toward_B[k]);
        for (int i = 0; i < 3; i++) toward_B[k][i] *= speed;
    }
}

/* Position (relative to p, in W), velocity and ground force in W of contact point k; returns 1 if it touches.
 *
 * Normal: spring and damper, never pulling. Tangential: spring to the anchor and damper, limited by Coulomb
 * friction, so a craft at rest stays where it is and a pushed one slides.
 */
static int contact(const parameters_t *c, const state_t *s, int64_t k, const double *y, double R[3][3], double *arm_W,
                   double *f_W)
{
    to_world(R, c->contact_B[k], arm_W);
    const double depth = -(y[P + 2] + arm_W[2]);
    f_W[0] = f_W[1] = f_W[2] = 0;
    if (depth <= 0) return 0;
    double turning_B[3], turning_W[3], v[3];
    cross(&y[W], c->contact_B[k], turning_B);
    to_world(R, turning_B, turning_W);
    for (int i = 0; i < 3; i++) v[i] = y[V + i] + turning_W[i];
    const double normal = c->contact_stiffness_n_m * depth - c->contact_damping_n_s_m * v[2];
    if (normal <= 0) return 1;
    f_W[2] = normal;
    for (int i = 0; i < 2; i++) {
        const double anchor = s->touching[k] ? s->anchor_W[k][i] : y[P + i] + arm_W[i];
        f_W[i] = -c->contact_stiffness_n_m * (y[P + i] + arm_W[i] - anchor) - c->contact_damping_n_s_m * v[i];
    }
    const double pull = sqrt(f_W[0] * f_W[0] + f_W[1] * f_W[1]), limit = c->friction * normal;
    if (pull > limit) f_W[0] *= limit / pull, f_W[1] *= limit / pull;
    return 1;
}

static int has_surface(const double *plane) { return plane[0] != 0 || plane[1] != 0 || plane[2] != 0; }

/* Deepest point (relative to p, in W) of contact shape k in direction -n: of a foot itself, of a rotor on its rim, of the
 * hull hull_ball_m from the rim of its disc.
 *
 * Where a disc is parallel to the surface, every point is deepest: the hub.
 */
static void deepest(const parameters_t *c, int64_t k, double R[3][3], const double *n_W, double *arm_W)
{
    double n_B[3], at_B[3];
    if (k == ground_contacts(c)) {
        double arm_B[3] = {0};
        to_body(R, n_W, n_B);
        const double length = sqrt(n_B[0] * n_B[0] + n_B[1] * n_B[1]);
        for (int i = 0; i < 2 && length > 1e-9; i++) arm_B[i] = -c->hull_disc_m * n_B[i] / length;
        to_world(R, arm_B, arm_W);
        for (int i = 0; i < 3; i++) arm_W[i] -= c->hull_ball_m * n_W[i];
        return;
    }
    memcpy(at_B, c->contact_B[k], sizeof at_B);
    if (k >= FEET) {
        double across[3];
        to_body(R, n_W, n_B);
        in_plane(n_B, c->axis_B[k - FEET], across);
        const double length = sqrt(dot(across, across));
        for (int i = 0; i < 3 && length > 1e-9; i++) at_B[i] -= c->disc_radius_m * across[i] / length;
    }
    to_world(R, at_B, arm_W);
}

static double depth_in(const double *plane, const double *p_W, const double *arm_W)
{
    double height = -plane[3];
    for (int i = 0; i < 3; i++) height += plane[i] * (p_W[i] + arm_W[i]);
    return -height;
}

/* Arm and force in W of contact shape k against its surface; returns 1 if it touches.
 *
 * As `contact`, with two differences. A shape that finds a new surface (the next face of a solid) carries its
 * spring's energy over and no more: the rest of the new depth is `sunk_m`. The rest position of friction is kept as
 * the distance slid, `slack_W`, because the deepest point of a disc is not one of its material points; `ahead_s` is
 * the time since slack_W was set. So neither adds energy. slip_W: velocity along the surface.
 */
static int surface(const parameters_t *c, const state_t *s, int64_t k, const double *y, double R[3][3], double ahead_s,
                   double *arm_W, double *f_W, double *slip_W)
{
    const double *plane = s->surface_W[k];
    deepest(c, k, R, plane, arm_W);
    f_W[0] = f_W[1] = f_W[2] = slip_W[0] = slip_W[1] = slip_W[2] = 0;
    const double depth = depth_in(plane, &y[P], arm_W);
    if (depth <= 0) return 0;
    double arm_B[3], turning_B[3], v[3], along = 0, pull = 0;
    to_body(R, arm_W, arm_B);
    cross(&y[W], arm_B, turning_B);
    to_world(R, turning_B, v);
    for (int i = 0; i < 3; i++) v[i] += y[V + i], along += v[i] * plane[i];
    for (int i = 0; i < 3; i++) slip_W[i] = v[i] - along * plane[i];
    const double felt = depth > s->sunk_m[k] ? depth - s->sunk_m[k] : 0;
    const double stiffness = c->surface_stiffness_n_m[k], damping = c->surface_damping_n_s_m[k];
    const double normal = felt > 0 ? stiffness * felt - damping * along : 0;
    if (normal <= 0) return 1;
    for (int i = 0; i < 3; i++) {
        f_W[i] = -stiffness * (s->slack_W[k][i] + ahead_s * slip_W[i]) - damping * slip_W[i];
        pull += f_W[i] * f_W[i];
    }
    const double limit = c->friction * normal, scale = pull > limit * limit ? limit / sqrt(pull) : 1;
    for (int i = 0; i < 3; i++) f_W[i] = f_W[i] * scale + normal * plane[i];
    return 1;
}

/* All forces but gravity, in W, and all torques, in B, at the state y, ahead_s after the start of the step. */
static void wrench(const parameters_t *c, const state_t *s, const double *y, double ahead_s, double *F_W,
                   double *M_B)
{
    double R[3][3], air_W[3], air_B[3], toward_B[ROTORS_MAX][3], F_B[3] = {0};
    rotation(&y[Q], R);
    for (int i = 0; i < 3; i++) air_W[i] = y[V + i] - s->wind_W[i], M_B[i] = 0;
    to_body(R, air_W, air_B);
    wall_inflow(c, s, R, toward_B);
    air(c, s, air_B, toward_B, &y[W], F_B, M_B);
    double spin_B[3] = {0}, turned_B[3]; /* angular momentum of the rotors */
    for (int64_t k = 0; k < c->rotors; k++) {
        const double *axis = c->axis_B[k];
        /* a rotor turns the air and its own inertia one way: the reaction turns the body the other way */
        const double reaction = c->rotor_spin[k] * (c->torque_per_thrust_m[k] * s->free_thrust_n[k] +
                                                    c->rotor_inertia_kg_m2 * s->rotor_acceleration_rad_s2[k]);
        const double momentum = c->rotor_spin[k] * c->rotor_inertia_kg_m2 * s->rotor_speed_rad_s[k];
        double thrust_B[3], m_B[3];
        for (int i = 0; i < 3; i++) thrust_B[i] = s->motor_thrust_n[k] * axis[i], F_B[i] += thrust_B[i];
        cross(c->rotor_B[k], thrust_B, m_B);
        for (int i = 0; i < 3; i++) {
            M_B[i] += m_B[i];
            M_B[i] -= reaction * axis[i];
            spin_B[i] += momentum * axis[i];
        }
    }
    cross(&y[W], spin_B, turned_B);
    for (int i = 0; i < 3; i++) M_B[i] -= turned_B[i];
    to_world(R, F_B, F_W);
    for (int i = 0; i < 3; i++) F_W[i] += s->force_W[i];

    for (int64_t k = 0; k < ground_contacts(c); k++) {
        double arm_W[3], f_W[3], m_W[3], m_B[3];
        if (!contact(c, s, k, y, R, arm_W, f_W)) continue;
        cross(arm_W, f_W, m_W);
        to_body(R, m_W, m_B);
        for (int i = 0; i < 3; i++) F_W[i] += f_W[i], M_B[i] += m_B[i];
    }
    for (int64_t k = 0; k < contacts(c); k++) {
        double arm_W[3], f_W[3], slip_W[3], m_W[3], m_B[3];
        if (!has_surface(s->surface_W[k])) continue;
        if (!surface(c, s, k, y, R, ahead_s, arm_W, f_W, slip_W)) continue;
        cross(arm_W, f_W, m_W);
        to_body(R, m_W, m_B);
        for (int i = 0; i < 3; i++) F_W[i] += f_W[i], M_B[i] += m_B[i];
    }
}

static void derivative(const parameters_t *c, const state_t *s, const double *y, double ahead_s, double *dy)
{
    double F_W[3], M_B[3], Jw[3], gyro[3];
    wrench(c, s, y, ahead_s, F_W, M_B);
    const double *q = &y[Q], *w = &y[W];
    for (int i = 0; i < 3; i++) {
        dy[P + i] = y[V + i];
        dy[V + i] = F_W[i] / c->mass_kg - (i == 2 ? c->gravity_m_s2 : 0);
        Jw[i] = c->inertia_kg_m2[i] * w[i];
    }
    dy[Q + 0] = 0.5 * (-q[1] * w[0] - q[2] * w[1] - q[3] * w[2]);
    dy[Q + 1] = 0.5 * (q[0] * w[0] + q[2] * w[2] - q[3] * w[1]);
    dy[Q + 2] = 0.5 * (q[0] * w[1] - q[1] * w[2] + q[3] * w[0]);
    dy[Q + 3] = 0.5 * (q[0] * w[2] + q[1] * w[1] - q[2] * w[0]);
    cross(w, Jw, gyro);
    for (int i = 0; i < 3; i++) dy[W + i] = (M_B[i] - gyro[i]) / c->inertia_kg_m2[i];
}

/* Rotor speeds one step on: the delayed command's steady speed, approached by a first-order lag.
 *
 * The motor of E. V. Strashnov, I. N. Mironenko, L. A. Finagin, "Simulation of quadcopter flight modes in virtual
 * environment systems", equation 25, I_m dΩ/dt = M_s (U - Ω/Ω_idle), is the same lag with the time constant
 * I_m Ω_idle / M_s and the steady speed Ω_idle U.
 *
 * Steady thrust fraction of a command u at the reference voltage: a u² + (1 - a) u, the form PX4's THR_MDL_FAC
 * inverts; thrust goes with the square of the speed, and rises near surfaces.
 */
static void spin_rotors(const parameters_t *c, state_t *s)
{
    const int64_t length = c->delay_steps + 1;
    double R[3][3], air_W[3], air_B[3];
    rotation(s->q_WB, R);
    for (int i = 0; i < 3; i++) air_W[i] = s->v_W[i] - s->wind_W[i];
    to_body(R, air_W, air_B);
    memcpy(s->ring[s->ring_head], s->command, sizeof s->command);
    s->ring_head = (s->ring_head + 1) % length; /* now the oldest entry, written delay_steps ago */
    for (int64_t k = 0; k < c->rotors; k++) {
        const double u = clip(s->ring[s->ring_head][k]), a = c->quadratic_fraction;
        const double goal = c->speed_full_rad_s * sqrt(a * u * u + (1 - a) * u) * s->speed_scale;
        const double old = s->rotor_speed_rad_s[k];
        const double now = goal + (old - goal) * (goal > old ? c->rise_decay : c->fall_decay);
        const double mean = 0.5 * (old + now), fraction = mean / c->speed_max_rad_s;
        s->rotor_speed_rad_s[k] = now;
        s->rotor_acceleration_rad_s2[k] = (now - old) / STEP_S;
        s->free_thrust_n[k] = c->thrust_coefficient_n_s2[k] * now * now;
        s->motor_thrust_n[k] = s->free_thrust_n[k] * near_surfaces(c, s, k, R, air_B);
        s->rotor_energy_j += c->power_max_w * fraction * fraction * fraction * STEP_S;
    }
}

/* Set new anchors where a point has landed; at the friction limit an anchor slides with its point. */
static void move_anchors(const parameters_t *c, state_t *s)
{
    double R[3][3];
    rotation(s->q_WB, R);
    s->on_ground = 0;
    for (int64_t k = 0; k < ground_contacts(c); k++) {
        double arm_W[3], f_W[3];
        const int touches = contact(c, s, k, s->p_W, R, arm_W, f_W);
        if (touches) {
            const double limit = c->friction * f_W[2] / c->contact_stiffness_n_m;
            double slack[2], length;
            for (int i = 0; i < 2; i++) {
                const double here = s->p_W[i] + arm_W[i];
                if (!s->touching[k]) s->anchor_W[k][i] = here;
                slack[i] = s->anchor_W[k][i] - here;
            }
            length = sqrt(slack[0] * slack[0] + slack[1] * slack[1]);
            for (int i = 0; i < 2 && length > limit; i++)
                s->anchor_W[k][i] = s->p_W[i] + arm_W[i] + slack[i] * limit / length;
            s->on_ground |= f_W[2] > 0;
        }
        s->touching[k] = touches;
    }
}

/* Take over the surfaces of this call: a shape's spring keeps its energy, its slack stays in the surface. */
static void adopt_surfaces(const parameters_t *c, state_t *s)
{
    double R[3][3], arm_W[3];
    rotation(s->q_WB, R);
    for (int64_t k = 0; k < contacts(c); k++) {
        double *old = s->held_W[k], *new = s->surface_W[k];
        if (memcmp(old, new, sizeof s->held_W[k]) == 0) continue;
        double felt = 0, depth = 0, along = 0;
        if (has_surface(old)) {
            deepest(c, k, R, old, arm_W);
            felt = fmax(depth_in(old, s->p_W, arm_W) - s->sunk_m[k], 0);
        }
        if (has_surface(new)) {
            deepest(c, k, R, new, arm_W);
            depth = fmax(depth_in(new, s->p_W, arm_W), 0);
        }
        s->sunk_m[k] = fmax(depth - felt, 0);
        for (int i = 0; i < 3; i++) along += s->slack_W[k][i] * new[i];
        for (int i = 0; i < 3; i++) s->slack_W[k][i] = felt > 0 ? s->slack_W[k][i] - along * new[i] : 0;
        memcpy(old, new, sizeof s->held_W[k]);
    }
}

/* After a step: rest positions slide at the friction limit, and a shape that moves out of its surface feels it again. */
static void move_slack(const parameters_t *c, state_t *s, double duration_s)
{
    double R[3][3];
    rotation(s->q_WB, R);
    for (int64_t k = 0; k < contacts(c); k++) {
        double slip_W[3], length = 0, force = 0, normal = 0, *f_W = s->contact_force_W[k], *arm_W = s->contact_W[k];
        s->contact_depth_m[k] = 0;
        f_W[0] = f_W[1] = f_W[2] = 0;
        if (!has_surface(s->surface_W[k])) continue;
        const int touches = surface(c, s, k, s->p_W, R, duration_s, arm_W, f_W, slip_W);
        const double depth = fmax(depth_in(s->surface_W[k], s->p_W, arm_W), 0);
        s->sunk_m[k] = fmin(s->sunk_m[k], depth);
        s->contact_depth_m[k] = depth;
        for (int i = 0; i < 3; i++) {
            arm_W[i] += s->p_W[i];
            force += f_W[i] * f_W[i];
            normal += f_W[i] * s->surface_W[k][i];
            s->slack_W[k][i] = touches ? s->slack_W[k][i] + duration_s * slip_W[i] : 0;
            length += s->slack_W[k][i] * s->slack_W[k][i];
        }
        const double limit = c->friction * normal / c->surface_stiffness_n_m[k];
        length = sqrt(length);
        for (int i = 0; i < 3 && length > limit; i++) s->slack_W[k][i] *= limit / length;
        s->contact_peak_n[k] = fmax(s->contact_peak_n[k], sqrt(force));
        s->on_ground |= k < FEET && f_W[2] > 0 && s->surface_W[k][2] > STANDING_NORMAL_Z;
    }
}

/* The accelerometer's specific force; the disturbance: what moving air, surfaces near the rotors and extra force add to
 * the drag in still, open air. */
static void observe(const parameters_t *c, state_t *s)
{
    double R[3][3], F_W[3], M[3], F_moving[3] = {0}, F_still[3] = {0};
    double air_W[3], air_B[3], v_B[3], toward_B[ROTORS_MAX][3];
    rotation(s->q_WB, R);
    wrench(c, s, s->p_W, 0, F_W, M);
    to_body(R, F_W, s->specific_force_B);
    for (int i = 0; i < 3; i++) s->specific_force_B[i] /= c->mass_kg, air_W[i] = s->v_W[i] - s->wind_W[i];
    to_body(R, air_W, air_B);
    to_body(R, s->v_W, v_B);
    wall_inflow(c, s, R, toward_B);
    air(c, s, air_B, toward_B, s->omega_B, F_moving, M);
    air(c, s, v_B, 0, s->omega_B, F_still, M);
    for (int64_t k = 0; k < c->rotors; k++)
        for (int i = 0; i < 3 && s->motor_thrust_n[k] != s->free_thrust_n[k]; i++)
            F_moving[i] += (s->motor_thrust_n[k] - s->free_thrust_n[k]) * c->axis_B[k][i];
    for (int i = 0; i < 3; i++) F_moving[i] -= F_still[i];
    to_world(R, F_moving, s->disturbance_W);
    for (int i = 0; i < 3; i++) s->disturbance_W[i] = (s->disturbance_W[i] + s->force_W[i]) / c->mass_kg;
}

/* Advance by `steps` milliseconds under the commands, wind and force of the state. */
void advance(const parameters_t *c, state_t *s, int64_t steps)
{
    adopt_surfaces(c, s);
    for (int64_t n = 0; n < steps; n++) {
        double *y = s->p_W; /* the first 13 numbers of the state */
        double k1[STATES], k2[STATES], k3[STATES], k4[STATES], x[STATES];
        spin_rotors(c, s);
        derivative(c, s, y, 0, k1);
        for (int i = 0; i < STATES; i++) x[i] = y[i] + 0.5 * STEP_S * k1[i];
        derivative(c, s, x, 0.5 * STEP_S, k2);
        for (int i = 0; i < STATES; i++) x[i] = y[i] + 0.5 * STEP_S * k2[i];
        derivative(c, s, x, 0.5 * STEP_S, k3);
        for (int i = 0; i < STATES; i++) x[i] = y[i] + STEP_S * k3[i];
        derivative(c, s, x, STEP_S, k4);
        for (int i = 0; i < STATES; i++) y[i] += STEP_S / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
        const double *q = s->q_WB;
        const double length = sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
        for (int i = 0; i < 4; i++) s->q_WB[i] /= length;
        move_anchors(c, s);
        move_slack(c, s, STEP_S);
    }
    if (steps == 0) move_slack(c, s, 0);
    observe(c, s);
}
