/* Six-rotor rigid body, advanced in steps of one millisecond.
 *
 * Frames: W is ENU (z up, the ground is the plane z = 0), B is FLU with its origin in the centre of mass.
 * q_WB = (w, x, y, z) rotates vectors of B into W. SI units.
 *
 *   ṗ = v                              m v̇ = R (F_rotors + F_drag) + F_ground + F_extra - m g e_z
 *   q̇ = ½ q ⊗ (0, ω)                   J ω̇ = τ - ω × (J ω + h e_z),   h = Σ s_i J_r Ω_i
 *
 * Integrated by the classic Runge-Kutta method with rotor speeds, wind and friction anchors held in a step; rotor
 * speeds follow their commands by an exactly discretised first-order lag. Rigid body and rotor drag: R. Mahony,
 * V. Kumar, P. Corke, "Multirotor aerial vehicles", IEEE Robotics & Automation Magazine 19(3), 2012, equations
 * (1)-(10). Both structs have a mirror in plant.py, which compares the sizes when it loads this library.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROTORS 6
#define FEET 4
#define CONTACTS (FEET + ROTORS) /* a craft on its back lies on its rotor hubs */
#define DELAY_MAX 201            /* steps in the command ring, one more than the longest delay */
#define STEP_S 1e-3

typedef struct {
    double gravity_m_s2;
    double mass_kg;
    double inertia_kg_m2[3];
    double rotor_B[ROTORS][3];              /* hubs */
    double rotor_spin[ROTORS];              /* +1: counter-clockwise seen from above */
    double thrust_coefficient_n_s2[ROTORS]; /* T = c Ω² */
    double torque_per_thrust_m;
    double rotor_inertia_kg_m2;
    double speed_max_rad_s;
    double quadratic_fraction;
    double rise_decay; /* exp(-step / time constant) of a rotor that gains speed */
    double fall_decay; /* … and of one that loses it */
    double in_plane_drag;
    double axial_drag;
    double power_max_w;
    double drag_linear[3];
    double drag_quadratic[3];
    double drag_angular[3];
    double contact_B[CONTACTS][3];
    double contact_stiffness_n_m;
    double contact_damping_n_s_m;
    double friction;
    int64_t delay_steps;
} parameters_t;

typedef struct {
    /* the rigid body; this order is the state vector of the integrator */
    double p_W[3];
    double v_W[3];
    double q_WB[4];
    double omega_B[3];
    /* inputs of a call */
    double command[ROTORS];
    double wind_W[3];
    double force_W[3];
    double speed_scale; /* rotor speed at the present battery voltage over that at the reference voltage */
    /* the rest of the state */
    double rotor_speed_rad_s[ROTORS];
    double rotor_acceleration_rad_s2[ROTORS];
    double anchor_W[CONTACTS][2]; /* rest position of a touching point */
    int64_t touching[CONTACTS];
    double ring[DELAY_MAX][ROTORS];
    int64_t ring_head;
    /* outputs */
    double specific_force_B[3];
    double motor_thrust_n[ROTORS];
    double disturbance_W[3];
    double rotor_energy_j; /* electrical, since the caller last set it to zero */
    int64_t on_ground;
} state_t;

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

/* Force and torque of the air on body and rotor discs, both in B, added to F and M.
 *
 * air_B: velocity of the body against the air. The body's drag grows linearly and quadratically with it. A rotor
 * disc is dragged in its plane in proportion to speed times air velocity (blade flapping and induced drag), and
 * loses thrust when it moves along its axis; both at the hub, so they also damp rotations.
 */
static void air(const parameters_t *c, const double *rotor_speed, const double *air_B, const double *omega_B,
                double *F, double *M)
{
    const double speed = sqrt(air_B[0] * air_B[0] + air_B[1] * air_B[1] + air_B[2] * air_B[2]);
    for (int i = 0; i < 3; i++) {
        F[i] -= (c->drag_linear[i] + c->drag_quadratic[i] * speed) * air_B[i];
        M[i] -= c->drag_angular[i] * omega_B[i];
    }
    for (int k = 0; k < ROTORS; k++) {
        double hub[3], f[3], m[3];
        cross(omega_B, c->rotor_B[k], hub);
        f[0] = -c->in_plane_drag * rotor_speed[k] * (air_B[0] + hub[0]);
        f[1] = -c->in_plane_drag * rotor_speed[k] * (air_B[1] + hub[1]);
        f[2] = -c->axial_drag * rotor_speed[k] * (air_B[2] + hub[2]);
        cross(c->rotor_B[k], f, m);
        for (int i = 0; i < 3; i++) F[i] += f[i], M[i] += m[i];
    }
}

/* Position (relative to p, in W), velocity and ground force in W of contact point k; returns 1 if it touches.
 *
 * Normal: spring and damper, never pulling. Tangential: spring to the anchor and damper, limited by Coulomb
 * friction, so a craft at rest stays where it is and a pushed one slides.
 */
static int contact(const parameters_t *c, const state_t *s, int k, const double *y, double R[3][3], double *arm_W,
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

/* All forces but gravity, in W, and all torques, in B, at the state y. */
static void wrench(const parameters_t *c, const state_t *s, const double *y, double *F_W, double *M_B)
{
    double R[3][3], air_W[3], air_B[3], F_B[3] = {0};
    rotation(&y[Q], R);
    for (int i = 0; i < 3; i++) air_W[i] = y[V + i] - s->wind_W[i], M_B[i] = 0;
    to_body(R, air_W, air_B);
    air(c, s->rotor_speed_rad_s, air_B, &y[W], F_B, M_B);
    double spin = 0; /* angular momentum of the rotors along z of B */
    for (int k = 0; k < ROTORS; k++) {
        const double thrust = s->motor_thrust_n[k];
        F_B[2] += thrust;
        M_B[0] += c->rotor_B[k][1] * thrust;
        M_B[1] -= c->rotor_B[k][0] * thrust;
        /* a rotor turns the air and its own inertia one way: the reaction turns the body the other way */
        M_B[2] -= c->rotor_spin[k] *
                  (c->torque_per_thrust_m * thrust + c->rotor_inertia_kg_m2 * s->rotor_acceleration_rad_s2[k]);
        spin += c->rotor_spin[k] * c->rotor_inertia_kg_m2 * s->rotor_speed_rad_s[k];
    }
    M_B[0] -= y[W + 1] * spin; /* -ω × (h e_z) */
    M_B[1] += y[W + 0] * spin;
    to_world(R, F_B, F_W);
    for (int i = 0; i < 3; i++) F_W[i] += s->force_W[i];

    for (int k = 0; k < CONTACTS; k++) {
        double arm_W[3], f_W[3], m_W[3], m_B[3];
        if (!contact(c, s, k, y, R, arm_W, f_W)) continue;
        cross(arm_W, f_W, m_W);
        to_body(R, m_W, m_B);
        for (int i = 0; i < 3; i++) F_W[i] += f_W[i], M_B[i] += m_B[i];
    }
}

static void derivative(const parameters_t *c, const state_t *s, const double *y, double *dy)
{
    double F_W[3], M_B[3], Jw[3], gyro[3];
    wrench(c, s, y, F_W, M_B);
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
 * Steady thrust fraction of a command u at the reference voltage: a u² + (1 - a) u, the form PX4's THR_MDL_FAC
 * inverts; thrust goes with the square of the speed.
 */
static void spin_rotors(const parameters_t *c, state_t *s)
{
    const int64_t length = c->delay_steps + 1;
    memcpy(s->ring[s->ring_head], s->command, sizeof s->command);
    s->ring_head = (s->ring_head + 1) % length; /* now the oldest entry, written delay_steps ago */
    for (int k = 0; k < ROTORS; k++) {
        const double u = clip(s->ring[s->ring_head][k]), a = c->quadratic_fraction;
        const double goal = c->speed_max_rad_s * sqrt(a * u * u + (1 - a) * u) * s->speed_scale;
        const double old = s->rotor_speed_rad_s[k];
        const double now = goal + (old - goal) * (goal > old ? c->rise_decay : c->fall_decay);
        const double mean = 0.5 * (old + now), fraction = mean / c->speed_max_rad_s;
        s->rotor_speed_rad_s[k] = now;
        s->rotor_acceleration_rad_s2[k] = (now - old) / STEP_S;
        s->motor_thrust_n[k] = c->thrust_coefficient_n_s2[k] * now * now;
        s->rotor_energy_j += c->power_max_w * fraction * fraction * fraction * STEP_S;
    }
}

/* Set new anchors where a point has landed; at the friction limit an anchor slides with its point. */
static void move_anchors(const parameters_t *c, state_t *s)
{
    double R[3][3];
    rotation(s->q_WB, R);
    s->on_ground = 0;
    for (int k = 0; k < CONTACTS; k++) {
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

/* The accelerometer's specific force; the disturbance: moving air and extra force beyond the still-air drag. */
static void observe(const parameters_t *c, state_t *s)
{
    double R[3][3], F_W[3], M[3], F_moving[3] = {0}, F_still[3] = {0}, air_W[3], air_B[3], v_B[3];
    rotation(s->q_WB, R);
    wrench(c, s, s->p_W, F_W, M);
    to_body(R, F_W, s->specific_force_B);
    for (int i = 0; i < 3; i++) s->specific_force_B[i] /= c->mass_kg, air_W[i] = s->v_W[i] - s->wind_W[i];
    to_body(R, air_W, air_B);
    to_body(R, s->v_W, v_B);
    air(c, s->rotor_speed_rad_s, air_B, s->omega_B, F_moving, M);
    air(c, s->rotor_speed_rad_s, v_B, s->omega_B, F_still, M);
    for (int i = 0; i < 3; i++) F_moving[i] -= F_still[i];
    to_world(R, F_moving, s->disturbance_W);
    for (int i = 0; i < 3; i++) s->disturbance_W[i] = (s->disturbance_W[i] + s->force_W[i]) / c->mass_kg;
}

/* Advance by `steps` milliseconds under the commands, wind and force of the state. */
void advance(const parameters_t *c, state_t *s, int64_t steps)
{
    for (int64_t n = 0; n < steps; n++) {
        double *y = s->p_W; /* the first 13 numbers of the state */
        double k1[STATES], k2[STATES], k3[STATES], k4[STATES], x[STATES];
        spin_rotors(c, s);
        derivative(c, s, y, k1);
        for (int i = 0; i < STATES; i++) x[i] = y[i] + 0.5 * STEP_S * k1[i];
        derivative(c, s, x, k2);
        for (int i = 0; i < STATES; i++) x[i] = y[i] + 0.5 * STEP_S * k2[i];
        derivative(c, s, x, k3);
        for (int i = 0; i < STATES; i++) x[i] = y[i] + STEP_S * k3[i];
        derivative(c, s, x, k4);
        for (int i = 0; i < STATES; i++) y[i] += STEP_S / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
        const double *q = s->q_WB;
        const double length = sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
        for (int i = 0; i < 4; i++) s->q_WB[i] /= length;
        move_anchors(c, s);
    }
    observe(c, s);
}
