#include "engine/head_text.h"

namespace isthmus {
namespace {

constexpr std::string_view kText =
    R"TEXT(The harbour town wakes before the sun does. By four o'clock the first boats are already out beyond the
breakwater, and the women who run the market are setting crates of ice along the wall. Nobody speaks much at that hour.
Coffee is passed from hand to hand in dented steel cups, and the gulls wait on the roof of the customs house as if they had
paid for their seats. When the boats come back, everything happens at once: prices are shouted, fish slide over the scales,
and a boy with a pencil behind his ear writes numbers in a wet notebook that he will never be able to read again.

User: Can you explain why the sky is blue?
Assistant: Sunlight contains all colours. As it passes through the air, molecules scatter short wavelengths, such as blue,
far more strongly than long ones, such as red. The scattered blue light reaches your eyes from every direction, so the whole
sky looks blue. At sunset the light travels through much more air; most of the blue has been scattered away by then, and
what remains is orange and red.
User: And why isn't it violet, then?
Assistant: Good question! There are three reasons: the sun sends out less violet than blue, the upper atmosphere absorbs part
of it, and our eyes are less sensitive to violet. Together they tip the balance towards blue.

How to repot a plant:
1. Water the plant a day before, so that the roots come out easily.
2. Choose a pot that is 2-3 cm wider than the old one, with a hole in the bottom.
3. Loosen the root ball and cut away roots that are brown or soft.
4. Fill in fresh soil, set the plant at the same height as before, and press gently.
5. Water it well and keep it out of direct sun for about a week.

def moving_average(values, window):
    """Return the means of all windows of the given length."""
    if window <= 0:
        raise ValueError("window must be positive")
    result = []
    total = 0.0
    for i, value in enumerate(values):
        total += value
        if i >= window:
            total -= values[i - window]
        if i + 1 >= window:
            result.append(total / window)
    return result

for (size_t i = 0; i < items.size(); ++i) {
  if (items[i].name.empty()) continue;
  std::printf("%zu: %s (%d)\n", i, items[i].name.c_str(), items[i].count);
}

SELECT city, COUNT(*) AS orders, SUM(price) AS total FROM sales WHERE year = 2021 GROUP BY city ORDER BY total DESC LIMIT 10;

{"id": 17, "name": "Ada", "tags": ["reader", "editor"], "active": true, "address": {"street": "12 Mill Lane", "zip": "04109"}}

The committee met on Tuesday, 14 March, to discuss the budget for the coming year. Revenue rose by 3.2 percent to 48.7 million,
while costs grew by 5.1 percent, mostly because energy became more expensive. The chair proposed to delay two projects and to
sell the old depot. After a long debate, the motion was carried by nine votes to four, with one abstention. Members also asked
for a written report on safety in schools, which is expected before the summer.

In mathematics, a prime number is a natural number greater than 1 that is not a product of two smaller natural numbers. There are
infinitely many primes, as Euclid showed around 300 BC: if there were only finitely many, their product plus one would be
divisible by none of them. The first few are 2, 3, 5, 7, 11, 13, 17, 19, 23 and 29. If x + 3 = 10, then x = 7. The area of a circle
with radius r is pi times r squared; for r = 5 that is about 78.54.

Question: A train leaves at 9:40 and arrives at 13:05. How long does the journey take?
Answer: From 9:40 to 13:00 is 3 hours and 20 minutes, and 5 more minutes make 3 hours and 25 minutes.

Dear Ms. Alvarez, thank you for your letter of 2 May. We are sorry to hear that the lamp arrived broken. A replacement was sent
today and should reach you within three working days; please keep the old one until our driver collects it. If you have any
further questions, do not hesitate to call us at any time. Yours sincerely, Tom Becker, customer service.

Once upon a time there was a little fox who could not sleep. Every night she climbed the hill behind her den and counted the lights
of the village. "One for the baker," she whispered, "two for the smith, and three for the girl who reads under her blanket." One
night the third light stayed dark. The fox waited and waited. Then she ran down the hill as fast as she could.

Heute ist es kalt, aber die Sonne scheint. Wir fahren mit dem Zug nach Hamburg und besuchen dort unsere Freunde. Am Abend wollen wir
gemeinsam kochen. La bibliothèque ouvre à neuf heures du matin; il faut apporter une carte d'identité pour emprunter des livres. El
tren sale a las ocho y llega a Sevilla antes del mediodía. Mañana tendremos que comprar pan, leche y fruta. 今天天气很好，我们去公园散步吧。
Сегодня вечером мы идём в театр, а потом ужинаем дома.

# Installation

Download the archive, unpack it and run the setup script. The program needs about 200 MB of disk space and Python 3.9 or newer:

    $ tar xf tool-1.4.tar.gz
    $ cd tool-1.4 && ./configure --prefix=$HOME/.local && make install

If the command is not found afterwards, add the folder to your PATH. See the manual page for all options, and report problems with
the output of `tool --version`.

Translate to French: "Where is the nearest pharmacy?" -> "Où est la pharmacie la plus proche ?"
Summarise in one sentence: The experiment failed because the sensor had been mounted upside down, which nobody noticed until the data
were analysed two weeks later. -> A sensor mounted upside down ruined the experiment.

Doctors recommend that adults sleep between seven and nine hours a night. Those who sleep much less are more likely to catch colds, to
gain weight and to have accidents. It helps to go to bed at the same time every day, to keep the room dark and cool, and to put the
phone away an hour before. Coffee after lunch is a bad idea for many people, since caffeine stays in the body for longer than they
think. If problems last for several weeks, it is best to see a doctor.
)TEXT";

}  // namespace

std::string_view head_calibration_text() { return kText; }

}  // namespace isthmus
